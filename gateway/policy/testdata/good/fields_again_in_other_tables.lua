local function f(x) local a = 1 a = 2; a = x; return a end
local t = { a = f(1), b = { a = 2, b = function() local a = 1; a = 2; if a == 2 then a = 3 end repeat a = 4 until a == 4 end } }
return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s", match = { path = "/x" } },
    { name = "b", key = "ip", rate = "1r/s", burst = t.a, match = { path = "/x" } },
  },
}
