-- The slots that this edge has leased for one client of a rule, and the decisions about its requests:
-- internal/fleetlimit/bucket.go decides as this module does. There is one bucket at a time: a caller loads it, uses it
-- and stores its text in one turn, in which nothing yields. Times are those of clock.lua.

local ffi = require "ffi"

local copy, fill, offsetof, sizeof, to_string = ffi.copy, ffi.fill, ffi.offsetof, ffi.sizeof, ffi.string
local abs, ceil, floor, huge, max, min = math.abs, math.ceil, math.floor, math.huge, math.max, math.min
local concat, gmatch, match = table.concat, string.gmatch, string.match
local ipairs, tonumber = ipairs, tonumber

ffi.cdef [[
typedef struct {
  double opens, opens_step, closes, closes_step, next;
  int32_t n, lane, stride, pad;
  char id[16];
} sluice_fleet_segment;
typedef struct {
  double retry, above, penalty, pause, leasing_until, leased_at, redis, used, since;
  int32_t decisions, seen, unusable, n;
  sluice_fleet_segment segments[48];
} sluice_fleet_bucket;
]]

local MAX_SEGMENTS = 48 -- of a bucket; further segments are dropped, and their slots are not used
local MAX_SLOTS, MAX_NUMBER = 2 ^ 31 - 1, 2 ^ 53 -- slots of a segment; numbers in an answer
local MAX_ID = 15 -- bytes
local FIELDS = 9 -- of each segment in an answer; the first three fields of the answer are those of the lease
local HEAD, SEGMENT = offsetof("sluice_fleet_bucket", "segments"), sizeof("sluice_fleet_segment")

-- The same numbers as in internal/fleetlimit.
local MAX_LANES, LEASE_SLOTS, MIN_AHEAD, MAX_AHEAD, ROUNDING = 16, 256, 1000000, 24000000, 2
local LEASE_TIMEOUT, UNKNOWN_WAIT, LATE_PAUSE = 1000000, 1000000, 1000000
local LEASE_DECISIONS, LEASE_TIME, CALM_TIME = 256, 20000, 1000000
local POLL_DECISIONS, REST_DECISIONS, POLL_TIME = 64, 16, 1000000
local RECENT_DECISIONS, RECENT_TIME = 512, 8000000
local COLD_AFTER = 10000000

local b = ffi.new("sluice_fleet_bucket")

local _M = {}

-- prepare(rule): call it once for each rule
function _M.prepare(rule)
  local interval = rule.period / rule.count
  rule.interval = interval
  rule.window = max(rule.burst * interval - ROUNDING, 0)
  rule.ahead = min(max(LEASE_SLOTS * interval, MIN_AHEAD), MAX_AHEAD)
  rule.lanes = min(max(floor(rule.burst / 2), 1), MAX_LANES)
end

-- load(text): sets the bucket to one that `text` has returned, or to an empty one for nil
function _M.load(text)
  if text then
    copy(b, text, #text)
  else
    fill(b, sizeof(b))
  end
end

-- text() -> the bucket, for load
function _M.text()
  return (to_string(b, HEAD + b.n * SEGMENT))
end

local function skip(s, n)
  s.opens, s.closes = s.opens + n * s.opens_step, s.closes + n * s.closes_step
  s.next, s.n = s.next + n * s.stride, s.n - n
end

-- drop_closed(s, now): removes the slots of a segment that have closed
local function drop_closed(s, now)
  if s.closes < now then
    skip(s, min(s.n, ceil((now - s.closes) / s.closes_step)))
  end
end

-- expire(now): removes the slots that have closed
local function expire(now)
  local live = 0
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    drop_closed(s, now)
    if s.n > 0 then
      if live < i then
        b.segments[live] = s
      end
      live = live + 1
    end
  end
  b.n = live
end

-- see(now): counts a request
function _M.see(now)
  if now - b.used > COLD_AFTER then
    b.since, b.seen = now, 0
  end
  if b.seen >= RECENT_DECISIONS or now - b.since > RECENT_TIME and b.seen > 1 then
    b.since, b.seen = now - (now - b.since) / 2, floor(b.seen / 2)
  end
  b.used, b.seen, b.decisions = now, b.seen + 1, b.decisions + 1
end

-- held(now) -> the number of lanes with slots that open later, and the slots of the longest of them
local function held(now)
  local lanes, longest = 0, 0
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    if s.opens > now then
      lanes, longest = lanes + 1, max(longest, s.n)
    end
  end
  return lanes, longest
end

-- demand(rule, now) -> lanes, slots of each; or nil. See Bucket.demand.
local function demand(rule, now)
  local recent = max(b.seen, 1)
  local rate = recent / max(now - b.since, 1)
  local lane = rule.interval * rule.lanes
  local share, span, above = rate * lane, CALM_TIME, now < b.above
  local has, longest = held(now)
  if above then
    share, span = 0.8 * share, rule.ahead + rule.window
    local waited = now - b.leased_at > POLL_TIME
    local rested = waited or b.decisions >= POLL_DECISIONS
    if b.decisions < REST_DECISIONS and not waited or (has > 0 or share < 1) and not rested
      or has > 0 and floor(share) <= has then
      return nil
    end
  else
    share = 1.1 * share
  end
  if share < 2 and not above or share < 1 then
    return 1, min(max(floor(share * rule.window / lane), 1), recent)
  end
  local lanes = min(floor(share), rule.lanes, recent)
  span = min(max(LEASE_DECISIONS / rate, LEASE_TIME), span)
  local slots = max(min(floor(span / lane), floor(recent / lanes)), 1)
  if has > 0 then
    lanes, slots = max(lanes - has, 1), min(slots, longest)
  end
  return lanes, slots
end

-- The segment of the slot that was spent last, as it was before.
local spent = ffi.new("sluice_fleet_segment")

-- take(rule, now) -> what, wait, lanes, slots. what: "admit"; "refuse", for another `wait` us, with lanes if
-- slots are to be leased in the background; "unavailable"; "lease"; "wait"
function _M.take(rule, now)
  expire(now)
  local best, opens = nil, huge
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    if s.opens > now then
      opens = min(opens, s.opens)
    elseif not best or s.closes < best.closes then
      best = s
    end
  end
  if best then
    copy(spent, best, SEGMENT)
    skip(best, 1)
    return "admit"
  end
  if b.leasing_until > now and now >= b.retry then
    return "wait"
  end
  if now < b.retry then
    if b.unusable == 1 then
      return "unavailable"
    end
    local wait = min(opens, b.retry) - now
    if b.decisions >= POLL_DECISIONS and b.leasing_until <= now then
      return "refuse", wait, demand(rule, now)
    end
    return "refuse", wait
  end
  local lanes, slots = demand(rule, now)
  if not lanes then
    if b.unusable == 1 then
      return "unavailable"
    end
    return "refuse", min(opens - now, UNKNOWN_WAIT)
  end
  return "lease", nil, lanes, slots
end

-- spent_slot() -> the slot that the last take has spent, for refund
function _M.spent_slot()
  return (to_string(spent, SEGMENT))
end

-- refund(slot) -> whether the bucket has taken back a spent slot: there may be no room
function _M.refund(slot)
  if b.n >= MAX_SEGMENTS then
    return false
  end
  local s = b.segments[b.n]
  copy(s, slot, SEGMENT)
  s.n = 1
  fill(s.id, MAX_ID + 1)
  b.n = b.n + 1
  return true
end

-- begin_lease(now): a lease is in progress, until apply or fail_lease
function _M.begin_lease(now)
  b.leasing_until = now + LEASE_TIMEOUT
end

function _M.fail_lease()
  b.leasing_until = 0
end

-- is_valid(i, number) -> whether a field of an answer can be this number. Steps and slots are above 0.
local function is_valid(i, number)
  local field = i > 3 and i % FIELDS
  return number and abs(number) < MAX_NUMBER and not ((field == 5 or field == 7) and number <= 0
    or field == 8 and (number < 1 or number > MAX_SLOTS or number % 1 ~= 0))
end

-- parse(answer) -> its fields: numbers, and an id as the last one of each segment; or nil if it is not valid
function _M.parse(answer)
  local fields = {}
  for text in gmatch(answer, "%S+") do
    local i, value = #fields + 1, text
    if i <= 3 or i % FIELDS ~= 3 then
      value = tonumber(match(text, "^%-?%d+%.?%d*$") or "")
      if not is_valid(i, value) then
        return nil
      end
    elseif #text > MAX_ID then
      return nil
    end
    fields[i] = value
  end
  return #fields % FIELDS == 3 and fields or nil
end

local leased = ffi.new("sluice_fleet_segment") -- of the lease that is applied

-- apply(rule, now, fields) -> "granted", "refused" or "late": adds a lease. See parse and Bucket.Apply.
function _M.apply(rule, now, fields)
  local redis, further, starting = fields[1], fields[2], fields[3]
  if redis < b.redis then -- the clock of Redis was set back
    b.n = 0
  end
  b.redis, b.retry = redis, now + further
  local last, result, s = now, "refused", leased
  for i = 4, #fields, FIELDS do
    s.opens, s.opens_step, s.closes, s.closes_step = fields[i], fields[i + 1], fields[i + 2], fields[i + 3]
    s.n, s.lane, s.next, s.stride = fields[i + 4], fields[i + 5], fields[i + 6], fields[i + 7]
    fill(s.id, MAX_ID + 1)
    copy(s.id, fields[i + 8])
    last = max(last, s.closes + s.n * s.closes_step)
    drop_closed(s, now)
    if s.n > 0 and s.opens <= s.closes then
      if b.n < MAX_SEGMENTS then
        b.segments[b.n] = s
        b.n = b.n + 1
      end
      result = "granted"
    elseif result == "refused" then
      result = "late"
    end
  end
  local trip = now - (b.leasing_until - LEASE_TIMEOUT)
  if result == "granted" or result == "refused" and trip < rule.window then
    b.pause = 0 -- slots that are leased with this round trip arrive in time
  elseif result == "late" then
    local repeated = b.pause > 0
    b.pause = min(max(2 * b.pause, trip), LATE_PAUSE)
    if repeated then
      b.retry = max(b.retry, now + b.pause)
    end
  end
  b.unusable = b.pause > 0 and 1 or starting -- a slot may be missing because late leases have wasted it
  if further == 0 or b.pause > 0 then
    b.penalty = 0
  else
    b.penalty = min(max(2 * b.penalty, rule.window, LEASE_TIME), rule.ahead + rule.window)
    b.above = last + b.penalty
  end
  b.leasing_until, b.leased_at, b.decisions = 0, now, 0
  return result
end

-- give_back(now, before) -> the segments that leave the bucket as fields of a line, "" if there are none. See
-- Bucket.Return.
local function give_back(now, before)
  expire(now)
  local returned, kept = {}, 0
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    local id, finish, joined = to_string(s.id), s.next + s.n * s.stride, false
    for _, r in ipairs(returned) do
      if r.lane == s.lane and r.finish == s.next and id ~= "" then
        r.finish, r.id, joined = finish, id, true
      end
    end
    if not joined and (id == "" or s.opens > before) then
      if kept < i then
        b.segments[kept] = s
      end
      kept = kept + 1
    elseif not joined then
      returned[#returned + 1] = { lane = s.lane, start = s.next, finish = finish, id = id }
    end
  end
  b.n = kept
  local out = {}
  for i, r in ipairs(returned) do
    out[i] = (" %d %.0f %.0f %s"):format(r.lane, r.start, r.finish, r.id)
  end
  return concat(out)
end

-- idle(now) -> whether the edge no longer needs the slots
local function idle(now)
  local gap = b.decisions > 0 and (b.used - b.leased_at) / b.decisions or 0
  return now - b.used > min(max(8 * gap, 1000000), 5000000)
end

-- unused(rule, now, is_exiting) -> the slots that the edge does not need, which leave the bucket, as fields of a line,
-- "" if there are none, or nil: nothing changed; and whether the bucket is no longer used. is_exiting: the edge needs
-- no slots. See Bucket.Unused.
function _M.unused(rule, now, is_exiting)
  if b.leasing_until > now then
    return nil, false
  end
  local ended = is_exiting or idle(now)
  if not ended and now >= b.above then
    return nil, false
  end
  return give_back(now, ended and huge or now - rule.window / 2), ended
end

return _M
