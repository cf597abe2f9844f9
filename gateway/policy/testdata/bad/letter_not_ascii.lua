local größe = 40
return { rules = {} }
-- want 1: a letter that is not ASCII: it may be in strings and comments only
