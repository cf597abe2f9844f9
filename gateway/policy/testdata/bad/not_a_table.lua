local x = 1
return x
-- want 2: a policy returns a table, and this returns the number 1: end it with return { rules = { {...} } }
