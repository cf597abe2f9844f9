local function f() return f() end
return { rules = f() }
-- want 1: runs for more than 20000 steps: is there an endless loop?
