local rules = { strict }
local strict = { name = "ip", key = "ip", rate = "1r/s" }
return { rules = rules }
-- want 1: "strict" is not defined: write a string in quotes, and a local before its use
