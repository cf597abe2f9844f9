return { rules = {} }
local burst = 40
-- want 2: unexpected "local": a policy ends with the value that it returns
