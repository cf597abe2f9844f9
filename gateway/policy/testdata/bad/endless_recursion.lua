local function f() return 1 + f() end
return { rules = f() }
-- want 1: stack overflow: calls within calls, more than 32 deep
