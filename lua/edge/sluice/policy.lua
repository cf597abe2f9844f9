-- Reads the edge policy: from its file to rules that can be applied, or to one line that names the first error:
-- "FILE:LINE: what".

local reader = require "sluice.policy.reader"
local read_source = require "sluice.policy.source"
local syntax = require "sluice.policy.syntax"

local find = string.find

local _M = {}

-- line_of(path, value, line, lines) -> the line of a part of a value, such as "rules.2.rate", or of the nearest part
-- around it
local function line_of(path, value, line, lines)
  for name in path:gmatch("[^.]+") do
    local key = find(name, "^%d") and tonumber(name) or name -- tonumber("inf") is a number, too
    local inner = lines[value] and lines[value][key]
    if not inner then
      break
    end
    value, line = value[key], inner
  end
  return line
end

-- parse(name, source) -> policy (see policy/reader.lua); or nil, message. name: the file's name for the message
function _M.parse(name, source)
  local t, begin, lines, what = syntax.parse(source)
  local first = begin
  if not what and type(t) ~= "table" then
    what = "a policy returns a table, and this returns " .. reader.describe(t)
      .. ": end it with return { rules = { {...} } }"
  end
  local policy = not what and reader.read(t, function(path, format, ...)
    local at = line_of(path, t, begin, lines)
    if not what or at < first then
      first, what = at, format:format(...)
    end
  end)
  if what then
    return nil, name .. ":" .. (first > 0 and first .. ":" or "") .. " " .. what
  end
  return policy
end

-- load(path) -> policy; or nil, message
function _M.load(path)
  local source, why = read_source(path)
  if not source then
    return nil, path .. ": " .. why
  end
  return _M.parse(path, source)
end

return _M
