-- The header fields that tell a client its quota: RateLimit-Policy, RateLimit (draft-ietf-httpapi-ratelimit-headers-11) and Retry-After.
-- The draft may still rename its parameters: they are spelled here and nowhere else.

local gcra = require "sluice.limit.gcra"

local remaining = gcra.remaining
local ceil, floor, max, random = math.ceil, math.floor, math.max, math.random

local SECOND = 1000000 -- us

-- Text for small numbers of requests left, which is nearly all of them, is made once per rule: it costs a request no memory.
local MEMO = 1000

-- Numbers of seconds, and what is made of them, are kept as texts up to this one.
local KEPT = 4096
local texts = {}

local _M = {}

local function seconds(us)
  return max(1, ceil(us / SECOND))
end

-- prepare(rule): call once per rule, before the others
function _M.prepare(rule)
  local quota = rule.burst + 1
  rule.quota_policy = ('"%s";q=%d;w=%.0f'):format(rule.name, quota, seconds(quota * rule.period / rule.count))
  rule.quota_memo, rule.exceeded_memo = {}, {}
  if rule.period / rule.count <= SECOND then -- then there is always one more within a second
    for r = 0, math.min(quota, MEMO) do
      rule.quota_memo[r] = ('"%s";r=%d;t=1'):format(rule.name, r)
    end
  end
end

-- limit(rule, backlog) -> one member of the field RateLimit, and how many requests are left. backlog: see limit/rules.lua
function _M.limit(rule, backlog)
  local left, wait = remaining(rule, backlog)
  return rule.quota_memo[left] or ('"%s";r=%d;t=%.0f'):format(rule.name, left, seconds(wait)), left
end

-- exceeded(rule, wait) -> the member for a request that the rule refuses for another `wait` microseconds, and whether this text is kept for ever
function _M.exceeded(rule, wait)
  local t = seconds(wait)
  local text = rule.exceeded_memo[t]
  if text then
    return text, true
  end
  text = ('"%s";r=0;t=%.0f'):format(rule.name, t)
  if t > KEPT then
    return text, false
  end
  rule.exceeded_memo[t] = text
  return text, true
end

-- retry_after(wait) -> whole seconds, never too few, and up to a tenth (one at least) more by chance: those who were refused together should not
-- all return in the same second. As a text, and whether it is kept for ever.
function _M.retry_after(wait)
  local least = seconds(wait)
  local n = least + random(0, max(1, floor(least / 10)))
  local text = texts[n]
  if text then
    return text, true
  end
  text = ("%.0f"):format(n)
  if n > KEPT then
    return text, false
  end
  texts[n] = text
  return text, true
end

return _M
