return { rules = {} }
--[==[ an example:
]]
-- want 2: a comment in long brackets that does not end
