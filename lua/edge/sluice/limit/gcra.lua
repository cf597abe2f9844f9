-- The arithmetic of one bucket, as a pure function of (rule, now, state). It is nginx's limit_req (a leaky bucket, also
-- known as GCRA) without its rounding, so any trace can be replayed to the same verdicts.
--
-- State is the instant at which the bucket will be empty: `tat` whole microseconds plus `frac` parts of a microsecond,
-- where a rule of `count` requests per `period` microseconds counts in parts of 1/count. In that unit one request costs
-- exactly `period`, whatever the rate: every quantity is a whole number below 2^53, and nothing is ever rounded. No
-- state means an empty bucket.
--
-- A rule here needs: count, period (us), tolerance (burst * period).

local floor = math.floor

local _M = {}

-- judge(rule, backlog) -> allowed, backlog
-- The argument backlog is what is in the bucket now, in the unit above. The result is what is in the bucket afterwards:
-- with this request if it is allowed, and without it otherwise.
local function judge(rule, backlog)
  if backlog > rule.tolerance then
    return false, backlog
  end
  return true, backlog + rule.period
end

_M.judge = judge

-- decide(rule, now, tat, frac) -> allowed, backlog: the same from a state
function _M.decide(rule, now, tat, frac)
  local backlog = 0
  if tat then
    backlog = (tat - now) * rule.count + frac
    if backlog < 0 then
      backlog = 0
    end
  end
  return judge(rule, backlog)
end

-- state(rule, now, backlog) -> tat, frac: what to store after an allowed request
function _M.state(rule, now, backlog)
  local count = rule.count
  local frac = backlog % count
  return now + (backlog - frac) / count, frac
end

-- wait(rule, backlog) -> microseconds until a refused request would be allowed
function _M.wait(rule, backlog)
  return (backlog - rule.tolerance) / rule.count
end

-- excess(rule, backlog) -> microseconds by which an allowed request is ahead of the rate: the delay
-- of a rule with `delay = true`
function _M.excess(rule, backlog)
  return (backlog - rule.period) / rule.count
end

-- empty_in(rule, backlog) -> microseconds until nothing is left in the bucket
function _M.empty_in(rule, backlog)
  return backlog / rule.count
end

-- remaining(rule, backlog) -> whole requests that would pass now, microseconds until there is one more
function _M.remaining(rule, backlog)
  local period = rule.period
  local room = rule.tolerance + period - backlog
  if room < 0 then -- the bucket is fuller than a burst that was lowered
    return 0, (period - room) / rule.count
  end
  return floor(room / period), (period - room % period) / rule.count
end

return _M
