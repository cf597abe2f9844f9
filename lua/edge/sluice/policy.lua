-- Reads the edge policy: from its file to rules that can be applied, or to one line that names the first error:
-- "FILE:LINE: what".

local position = require "sluice.policy.position"
local reader = require "sluice.policy.reader"
local sandbox = require "sluice.policy.sandbox"

local _M = {}

local function one_line(text)
  return (text:gsub("%s+", " "))
end

-- parse(name, source) -> policy (see policy/reader.lua); or nil, message. name: the file's name for the message
function _M.parse(name, source)
  local ok, t, line = sandbox.run(source)
  if not ok then
    return nil, one_line(name .. ":" .. (line and line .. ":" or "") .. " " .. t)
  end
  local line_of = position.lines(source)
  if type(t) ~= "table" then
    local what = "a policy returns a table, and this returns " .. reader.describe(t)
      .. ": end it with return { rules = { {...} } }"
    return nil, one_line(("%s:%d: %s"):format(name, line_of(""), what))
  end
  local first, what
  local policy = reader.read(t, function(path, format, ...)
    local at = line_of(path)
    if not first or at < first then
      first, what = at, format:format(...)
    end
  end)
  if first then
    return nil, one_line(("%s:%d: %s"):format(name, first, what))
  end
  return policy
end

-- load(path) -> policy; or nil, message
function _M.load(path)
  local source, why = sandbox.read(path)
  if not source then
    return nil, path .. ": " .. why
  end
  return _M.parse(path, source)
end

return _M
