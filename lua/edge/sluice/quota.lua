-- The header fields that report a client its quota: RateLimit-Policy, RateLimit
-- (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After. The draft may still rename its parameters: they are
-- spelled here and nowhere else.

local gcra = require "sluice.limit.gcra"

local remaining = gcra.remaining
local ceil, floor, max, random = math.ceil, math.floor, math.max, math.random
local setmetatable = setmetatable

local SECOND = 1000000 -- us

-- Texts that are cached for each kind: most requests need a text that an earlier one had.
local KEPT = 4096

local _M = {}

-- cached(make) -> a table of texts by number: make(n) makes a text that is not there
local function cached(make)
  local room = KEPT
  return setmetatable({}, { __index = function(texts, n)
    local text = make(n)
    if room > 0 then
      texts[n], room = text, room - 1
    end
    return text
  end })
end

local numbers = cached(function(n) return ("%.0f"):format(n) end)

-- number(n) -> a whole number as a text
function _M.number(n)
  return numbers[n]
end

local function seconds(us)
  return max(1, ceil(us / SECOND))
end

-- prepare(rule): call it once for each rule, before the other functions
function _M.prepare(rule)
  local name, quota = rule.name, rule.burst + 1
  rule.quota_policy = ('"%s";q=%d;w=%.0f'):format(name, quota, seconds(quota * rule.period / rule.count))
  rule.within_a_second = rule.period / rule.count <= SECOND -- there is always one more request within a second
  rule.limit_texts = cached(function(left) return ('"%s";r=%d;t=1'):format(name, left) end)
  rule.exceeded_texts = cached(function(t) return ('"%s";r=0;t=%.0f'):format(name, t) end)
end

-- limit(rule, backlog) -> one member of the field RateLimit, and how many requests are left. backlog: see
-- limit/rules.lua
function _M.limit(rule, backlog)
  local left, wait = remaining(rule, backlog)
  if rule.within_a_second then
    return rule.limit_texts[left], left
  end
  return ('"%s";r=%d;t=%.0f'):format(rule.name, left, seconds(wait)), left
end

-- join(a, b) -> a field of two members or more
function _M.join(a, b)
  return a .. ", " .. b
end

-- exceeded(rule, wait) -> the member for a request that the rule refuses for another `wait` microseconds
function _M.exceeded(rule, wait)
  return rule.exceeded_texts[seconds(wait)]
end

-- retry_after(wait) -> whole seconds, as a text: at least the wait, and a random part of up to a tenth (at least one
-- second) more, so that clients which were refused together do not all return in the same second
function _M.retry_after(wait)
  local least = seconds(wait)
  return numbers[least + random(0, max(1, floor(least / 10)))]
end

return _M
