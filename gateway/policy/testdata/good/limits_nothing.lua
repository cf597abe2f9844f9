-- Nothing is limited.
return { rules = {} }
