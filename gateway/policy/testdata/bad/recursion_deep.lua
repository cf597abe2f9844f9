local function f(n)
  if n == 0 then return {} end
  local t = f(n - 1)
  return t
end
return { rules = f(100) }
-- want 3: stack overflow: calls within calls, more than 32 deep
