-- The header fields that tell a client its quota: RateLimit-Policy, RateLimit (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After.
-- The draft may still rename its parameters: they are spelled here and nowhere else.

local gcra = require "sluice.limit.gcra"

local remaining = gcra.remaining
local ceil, floor, max, min, random = math.ceil, math.floor, math.max, math.min, math.random

local SECOND = 1000000 -- us

-- Most requests need a text that another had before. Those are kept, for ever: then they cost no memory, and may be told without a copy
-- (request.set). The first of each kind are made beforehand: where some requests make a text and others find one, LuaJIT compiles the making anew for
-- each size that the table ever had, and whoever finds one comes by all of these.
local KEPT = 4096
local READY = 1024 -- of what each rule has left

-- kept(n, make) -> texts by number, those of 0 to n by make(i); room counts down for others
local function kept(n, make)
  local texts = { room = KEPT }
  for i = 0, n do
    texts[i] = make(i)
  end
  return texts
end

-- keep(of, key, text) -> text, whether it is kept
local function keep(of, key, text)
  if of.room == 0 then
    return text, false
  end
  of[key], of.room = text, of.room - 1
  return text, true
end

local function whole(n)
  return ("%.0f"):format(n)
end

local numbers = kept(KEPT, whole)

local _M = {}

-- number(n) -> a whole number as a text, and whether it is kept
local function number(n)
  local text = numbers[n]
  if text then
    return text, true
  end
  return keep(numbers, n, whole(n))
end

_M.number = number

local function seconds(us)
  return max(1, ceil(us / SECOND))
end

-- within(rule, left) -> the member of the field RateLimit for a rule that allows another request within a second, whatever is left
local function within(rule, left)
  return ('"%s";r=%d;t=1'):format(rule.name, left)
end

-- without(rule, t) -> the member for t seconds without a request
local function without(rule, t)
  return ('"%s";r=0;t=%.0f'):format(rule.name, t)
end

-- prepare(rule): call once per rule, before the others
function _M.prepare(rule)
  local quota = rule.burst + 1
  rule.quota_policy = ('"%s";q=%d;w=%.0f'):format(rule.name, quota, seconds(quota * rule.period / rule.count))
  rule.within_a_second = rule.period / rule.count <= SECOND -- there is always one more
  rule.quota_texts = kept(rule.within_a_second and min(quota, READY) or -1, function(left)
    return within(rule, left)
  end)
  rule.exceeded_texts = kept(min(seconds(rule.period / rule.count), KEPT), function(t)
    return without(rule, t)
  end)
end

-- limit(rule, backlog) -> one member of the field RateLimit, how many requests are left, and whether the text is kept. backlog: see limit/rules.lua
function _M.limit(rule, backlog)
  local left, wait = remaining(rule, backlog)
  if not rule.within_a_second then
    return ('"%s";r=%d;t=%.0f'):format(rule.name, left, seconds(wait)), left, false
  end
  local text = rule.quota_texts[left]
  if text then
    return text, left, true
  end
  local is_kept
  text, is_kept = keep(rule.quota_texts, left, within(rule, left))
  return text, left, is_kept
end

-- pairs(): a table for pair
function _M.pairs()
  return { room = KEPT }
end

-- pair(of, a, b) -> a field of two members that are kept, and whether it is kept itself
function _M.pair(of, a, b)
  local behind = of[a]
  local text = behind and behind[b]
  if text then
    return text, true
  end
  text = a .. ", " .. b
  if of.room == 0 then
    return text, false
  end
  if not behind then
    behind = {}
    of[a] = behind
  end
  behind[b], of.room = text, of.room - 1
  return text, true
end

-- exceeded(rule, wait) -> the member for a request that the rule refuses for another `wait` microseconds, and whether this text is kept
function _M.exceeded(rule, wait)
  local t = seconds(wait)
  local text = rule.exceeded_texts[t]
  if text then
    return text, true
  end
  return keep(rule.exceeded_texts, t, without(rule, t))
end

-- retry_after(wait) -> whole seconds, never too few, and up to a tenth (one at least) more by chance: those who were refused together should not
-- all return in the same second. As a text, and whether it is kept.
function _M.retry_after(wait)
  local least = seconds(wait)
  return number(least + random(0, max(1, floor(least / 10))))
end

return _M
