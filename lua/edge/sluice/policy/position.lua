-- Maps the parts of a policy's table to lines of its source: "rules.2.rate" to a line. It reads the table constructor
-- after the last `return`. A part that is computed elsewhere has the line of the nearest part around it.

local _M = {}

-- Tokens: { text, line }. Without comments and white space. A string is one token, which begins with a quote.
local function long_bracket(source, at)
  local equals = source:match("^%[(=*)%[", at)
  if not equals then
    return nil
  end
  local _, stop = source:find("]" .. equals .. "]", at, true)
  return stop or #source
end

local function short_string(source, at)
  local quote, i = source:sub(at, at), at + 1
  while i <= #source do
    local c = source:sub(i, i)
    if c == "\\" then
      i = i + 1
    elseif c == quote or c == "\n" then
      break
    end
    i = i + 1
  end
  return i
end

local function tokens(source)
  local out, at, line = {}, 1, 1
  while at <= #source do
    local stop
    local keep = true
    if source:find("^%s", at) then
      stop = select(2, source:find("^%s+", at))
      keep = false
    elseif source:find("^%-%-", at) then
      stop = long_bracket(source, at + 2) or (source:find("\n", at, true) or #source + 1) - 1
      keep = false
    elseif source:find("^[\"']", at) then
      stop = short_string(source, at)
    elseif long_bracket(source, at) then
      stop = long_bracket(source, at)
    else
      stop = select(2, source:find("^[%w_.]+", at)) or at
    end
    local text = source:sub(at, stop)
    if keep then
      out[#out + 1] = { text, line }
    end
    line = line + select(2, text:gsub("\n", ""))
    at = stop + 1
  end
  return out
end

local OPEN = { ["{"] = true, ["("] = true, ["["] = true, ["function"] = true, ["if"] = true, ["do"] = true }
local CLOSE = { ["}"] = true, [")"] = true, ["]"] = true, ["end"] = true }

-- constructor(list, i, path, lines) -> the index after the closing brace; list[i] is the opening one
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

-- lines(source) -> function(path) -> line
function _M.lines(source)
  local list, found = tokens(source), { [""] = 1 }
  for i = #list, 1, -1 do
    if list[i][1] == "return" then
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
