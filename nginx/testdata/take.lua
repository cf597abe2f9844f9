-- Buckets by texts, as tests like to name them. For tests only.

local buckets = require "sluice.limit.buckets"
local names = require "sluice.limit.name"
local rules = require "sluice.limit.rules"

local whose = names.new()

local _M = {}

-- aim(list, keys): prepares rules that are not yet, each of which stands in the list once, and means the bucket of its key
function _M.aim(list, keys)
  for i, rule in ipairs(list) do
    if not rule.bucket then
      rule.prefix = rule.prefix or "test:"
      rules.prepare(rule)
    end
    names.buyer(whose, keys[i])
    rules.aim(list, i, i, whose)
  end
end

-- take(list, keys) -> as rules.admit
function _M.take(list, keys)
  _M.aim(list, keys)
  return rules.admit(list, #list)
end

local function upvalue(f, wanted)
  for i = 1, 60 do
    local name, value = debug.getupvalue(f, i)
    if name == wanted then
      return value
    end
  end
  error("there is no " .. wanted)
end

-- lock() -> what guards the buckets of rules
function _M.lock()
  return upvalue(rules.mend, "held")
end

local function place(rule, key)
  _M.aim({ rule }, { key })
  local t = upvalue(rules.live, "t")
  return t, buckets.find(t, rule.bucket)
end

-- places() -> how many buckets there could be
function _M.places()
  return upvalue(rules.live, "t").n * 8
end

-- state(rule, key) -> tat, frac; or nil: there is no bucket
function _M.state(rule, key)
  local t, at = place(rule, key)
  if at >= 0 then
    return buckets.read(t, at)
  end
end

-- empty(rule, key): as if its time were over
function _M.empty(rule, key)
  local t, at = place(rule, key)
  assert(at >= 0, key)
  buckets.write(t, at, 0, 0)
end

return _M
