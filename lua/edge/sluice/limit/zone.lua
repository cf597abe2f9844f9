-- A shared dict that holds the buckets of sluice.limit.req, with the lock around it and the care for its room. Buckets that are over expire; when
-- there is no room all the same, a new bucket is refused: only the safe_ forms write, so a live bucket is never pushed out by another one.

local clock = require "sluice.clock"
local lock = require "sluice.limit.lock"

local acquire, release = lock.acquire, lock.release
local max = math.max

-- An idle bucket expires this long after it is empty, in seconds. Zones judge a time to live by each worker's cached clock, which is as
-- old as that worker's turn of the event loop: the margin is far above any such turn.
local MARGIN = 5

-- The zone is swept of expired buckets when it is full. A sweep walks all of it under its lock, 40 ms for the 800,000 buckets of 100 MB, and may find
-- nothing. So there are this many microseconds between two, and this many times as long as the last one took.
local SWEEP_EVERY = 1000000
local SWEEP_REST = 100

local _M = {}

-- open(dict) -> zone; or nil, err. Zones of one dict, in whatever worker, have one lock.
function _M.open(dict)
  local held, err = lock.of(dict)
  if not held then
    return nil, err
  end
  return { dict = dict, lock = held }
end

-- enter(zone) -> now (us): the caller has the zone for itself until leave, and must not yield; or nil, why
function _M.enter(zone)
  return acquire(zone.lock)
end

function _M.leave(zone)
  release(zone.lock)
end

-- sweep(zone, now) -> true when it may have made room
local function sweep(zone, now)
  if now < lock.sweep_at(zone.lock) then
    return false
  end
  zone.dict:flush_expired()
  lock.set_sweep_at(zone.lock, now + max(SWEEP_EVERY, SWEEP_REST * (clock.now() - now)))
  return true
end

-- put(zone, now, key, value, us) -> ok, err: writes a bucket that is empty in so many microseconds. Call it between enter and leave.
function _M.put(zone, now, key, value, us)
  local ttl = us / 1000000 + MARGIN
  local ok, err = zone.dict:safe_set(key, value, ttl)
  if not ok and err == "no memory" and sweep(zone, now) then
    ok, err = zone.dict:safe_set(key, value, ttl)
  end
  return ok, err
end

return _M
