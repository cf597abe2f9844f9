-- The header fields that report a client its quota: RateLimit-Policy, RateLimit
-- (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After. The draft may still rename its parameters: only this
-- module contains their names.

local gcra = require "sluice.limit.gcra"

local remaining = gcra.remaining
local ceil, floor, max, min, random = math.ceil, math.floor, math.max, math.min, math.random

local SECOND = 1000000 -- us

-- Texts that are kept for each kind: most requests need a text that an earlier one had. A text that is kept exists
-- for the lifetime of the worker.
local KEPT = 4096

local _M = {}

-- keeper(make) -> a function get(n) -> the text make(n), and whether it is kept
local function keeper(make)
  local texts, room = {}, KEPT
  return function(n)
    local text = texts[n]
    if text then
      return text, true
    end
    text = make(n)
    if room == 0 then
      return text, false
    end
    texts[n], room = text, room - 1
    return text, true
  end
end

-- number(n) -> a whole number as a text, and whether it is kept
local number = keeper(function(n) return ("%.0f"):format(n) end)
_M.number = number

local function seconds(us)
  return (max(1, ceil(us / SECOND)))
end

-- prepare(rule): call it once for each rule, before the other functions
function _M.prepare(rule)
  local name, quota = rule.name, rule.burst + 1
  rule.quota_policy = ('"%s";q=%d;w=%.0f'):format(name, quota, seconds(quota * rule.period / rule.count))
  rule.within_a_second = rule.period / rule.count <= SECOND -- there is always one more request within a second
  rule.limit_text = keeper(function(left) return ('"%s";r=%d;t=1'):format(name, left) end)
  rule.exceeded_text = keeper(function(t) return ('"%s";r=0;t=%.0f'):format(name, t) end)
end

-- limit(rule, backlog) -> one member of the field RateLimit, and how many requests are left. backlog: see
-- limit/rules.lua
function _M.limit(rule, backlog)
  local left, wait = remaining(rule, backlog)
  if rule.within_a_second then
    return (rule.limit_text(left)), left
  end
  return ('"%s";r=%d;t=%.0f'):format(rule.name, left, seconds(wait)), left
end

-- exceeded(rule, wait) -> the member for a request that the rule refuses for another `wait` microseconds, and whether
-- the text is kept
function _M.exceeded(rule, wait)
  return rule.exceeded_text(seconds(wait))
end

-- retry_after(wait) -> whole seconds, as a text, and whether the text is kept: at least the wait, and a random part of
-- up to a tenth (at least one second, at most an hour) more, so that clients which were refused together do not all
-- return in one second
function _M.retry_after(wait)
  local least = seconds(wait)
  return number(least + random(0, max(1, min(floor(least / 10), 3600))))
end

return _M
