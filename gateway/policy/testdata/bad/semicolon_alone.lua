;
return { rules = {} }
-- want 1: unexpected ";": a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }
