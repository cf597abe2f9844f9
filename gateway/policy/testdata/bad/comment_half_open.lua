--[= rules
return { rules = {} }
-- want 1: a comment that begins like a long one: put a space behind --
