-- Maps the parts of a policy's table to lines of its source: "rules.2.rate" to a line. It reads the table constructor
-- after the last `return` outside functions and blocks, and those of local variables that it names. A part that is
-- computed elsewhere has the line of the nearest part around it. gateway/policy/position.go does the same in Go.

local tokens = require("sluice.policy.dialect").tokens

local _M = {}

local OPEN = { ["{"] = true, ["("] = true, ["["] = true, ["function"] = true, ["if"] = true, ["do"] = true }
local CLOSE = { ["}"] = true, [")"] = true, ["]"] = true, ["end"] = true }
local ENDS = { [","] = true, [";"] = true, ["}"] = true } -- the tokens behind the value of a field

-- local_tables(list) -> by name of a local variable outside functions and blocks: the index of the brace that opens its
-- table
local function local_tables(list)
  local tables, depth = {}, 0
  for i, token in ipairs(list) do
    local text = token[1]
    if depth == 0 and text == "{" and list[i - 1][1] == "=" and list[i - 3] and list[i - 3][1] == "local" then
      tables[list[i - 2][1]] = i
    end
    depth = depth + (OPEN[text] and 1 or CLOSE[text] and -1 or 0)
  end
  return tables
end

-- field(list, i, wanted) -> the index of the value of a field, and the line on which the field begins; or nil
--   i        index of the brace that opens the table
--   wanted   a name, or the position of a list entry
local function field(list, i, wanted)
  local item = 0
  i = i + 1
  while list[i] and list[i][1] ~= "}" do
    local key
    local line = list[i][2]
    if list[i + 1] and list[i + 1][1] == "=" and list[i][1]:find("^[%a_]") then
      key, i = list[i][1], i + 2
    elseif list[i][1] == "[" and list[i + 1] and list[i + 2] and list[i + 2][1] == "]" then
      key, i = list[i + 1][1]:gsub("[\"']", ""), i + 4
    else
      item = item + 1
      key = tostring(item)
    end
    if key == wanted then
      return i, line
    end
    local depth = 0
    while list[i] and not (depth == 0 and ENDS[list[i][1]]) do
      local text = list[i][1]
      depth = depth + (OPEN[text] and 1 or CLOSE[text] and -1 or 0)
      i = i + 1
    end
    if list[i] and list[i][1] ~= "}" then
      i = i + 1
    end
  end
end

-- lines(source) -> function(path) -> line. source: without Lua that edges read differently
function _M.lines(source)
  local list, depth = tokens(source), 0
  local tables = local_tables(list)
  local returned, returned_at = nil, 1 -- the index of the value, and its line
  for i = #list, 1, -1 do
    local text = list[i][1]
    depth = depth + (CLOSE[text] and 1 or OPEN[text] and -1 or 0)
    if text == "return" and depth == 0 then
      returned, returned_at = i + 1, list[i][2]
      break
    end
  end
  -- opening(i) -> the index of the brace that opens the table of the value at i; or nil
  local function opening(i)
    local value, after = list[i], list[i + 1]
    if not value or value[1] == "{" then
      return value and i
    end
    return (not after or ENDS[after[1]]) and tables[value[1]] or nil
  end
  return function(path)
    local at, line = returned, returned_at
    while path ~= "" do
      local open = at and opening(at)
      if not open then
        break
      end
      local name, rest = path:match("^([^.]*)%.?(.*)$")
      if field(list, open, path) then -- a name with a point
        name, rest = path, ""
      end
      local value, its_line = field(list, open, name)
      if not value then
        break
      end
      at, line, path = value, its_line, rest
    end
    return line
  end
end

return _M
