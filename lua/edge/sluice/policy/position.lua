-- Maps the parts of a policy's table to lines of its source: "rules.2.rate" to a line. It reads the table constructor
-- after the last `return` outside functions and blocks. A part that is computed elsewhere has the line of the nearest
-- part around it.

local tokens = require("sluice.policy.dialect").tokens

local _M = {}

local OPEN = { ["{"] = true, ["("] = true, ["["] = true, ["function"] = true, ["if"] = true, ["do"] = true }
local CLOSE = { ["}"] = true, [")"] = true, ["]"] = true, ["end"] = true }

-- constructor(list, i, path, lines) -> the index after the closing brace; list[i] is the opening one. list: of
-- dialect.tokens; lines: gets the lines by path
local function constructor(list, i, path, lines)
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
    local at = path == "" and key or path .. "." .. key
    lines[at] = line
    if list[i] and list[i][1] == "{" then
      i = constructor(list, i, at, lines)
    end
    local depth = 0
    while list[i] do
      local text = list[i][1]
      if depth == 0 and (text == "," or text == ";" or text == "}") then
        break
      end
      depth = depth + (OPEN[text] and 1 or CLOSE[text] and -1 or 0)
      i = i + 1
    end
    if list[i] and list[i][1] ~= "}" then
      i = i + 1
    end
  end
  return i + 1
end

-- lines(source) -> function(path) -> line. source: without Lua that edges read differently
function _M.lines(source)
  local list, found, depth = tokens(source), { [""] = 1 }, 0
  for i = #list, 1, -1 do
    local text = list[i][1]
    depth = depth + (CLOSE[text] and 1 or OPEN[text] and -1 or 0)
    if text == "return" and depth == 0 then
      found[""] = list[i][2]
      if list[i + 1] and list[i + 1][1] == "{" then
        constructor(list, i + 1, "", found)
      end
      break
    end
  end
  return function(path)
    while not found[path] do
      path = path:match("^(.*)%.[^.]*$") or ""
    end
    return found[path]
  end
end

return _M
