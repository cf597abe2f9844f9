-- Accelerator: a loop of which the first rounds are written one after the other. Stands in for sluice/each.lua.
--
-- LuaJIT compiles neither a loop that usually ends in its first rounds, nor the code after it. All closures of one
-- function in the source share its compiled code, so the source of each loop is loaded separately.

local assert, concat, loadstring = assert, table.concat, loadstring

local ROUND = [[
  if from > to then
    return
  end
  x, y = f(from, a, b)
  if x ~= nil then
    return x, y
  end
  from = from + 1
]]

-- each(f, rounds) -> see sluice/each.lua. rounds: how many are written out, two by default
return function(f, rounds)
  local text = {
    "local f = ...",
    "return function(from, to, a, b)",
    "  local x, y",
    ROUND:rep(rounds or 2),
    "  for i = from, to do",
    "    x, y = f(i, a, b)",
    "    if x ~= nil then",
    "      return x, y",
    "    end",
    "  end",
    "end",
  }
  return assert(loadstring(concat(text, "\n"), "=each"))(f)
end
