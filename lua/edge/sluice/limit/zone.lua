-- A shared dict that holds buckets, with the lock around it. Only the safe_ forms write: a bucket that is in use is
-- never evicted for another one. An empty bucket expires. When the dict is full of buckets in use, a new bucket gets an
-- error.

local clock = require "sluice.clock"
local lock = require "sluice.limit.lock"

local now_us = clock.now
local max, setmetatable = math.max, setmetatable

-- An entry expires this many seconds after its bucket is empty. The dict compares with the wall clock that each worker
-- last cached, which is as old as the worker's turn of the event loop: the margin is far above any such turn.
local MARGIN = 5

-- A full dict is swept of expired entries. A sweep walks the whole dict under its mutex (40 ms for 800,000 entries) and
-- may find none. Between two sweeps of a worker are SWEEP_EVERY microseconds, and SWEEP_REST times the time that the
-- last one took.
local SWEEP_EVERY = 1000000
local SWEEP_REST = 100

local _M = {}
local mt = { __index = _M }

-- new(dict) -> zone
function _M.new(dict)
  return setmetatable({ dict = dict, lock = lock.new(dict), sweep_at = 0 }, mt)
end

-- enter(self) -> now (us): no other worker is in this zone until leave; or nil, err. The caller must not yield.
function _M.enter(self)
  return self.lock:acquire()
end

function _M.leave(self)
  self.lock:release()
end

-- repair(self): see lock.lua
function _M.repair(self)
  self.lock:repair()
end

local function sweep(self, now)
  if now < self.sweep_at then
    return false
  end
  self.dict:flush_expired()
  self.sweep_at = now + max(SWEEP_EVERY, SWEEP_REST * (now_us() - now))
  return true
end

-- put(self, now, key, value, us, flags) -> true; or nil, err. Writes the state of a bucket that is empty in `us`
-- microseconds. An entry that exists with a value of the same size is written in place, which does not fail. Call it
-- between enter and leave.
function _M.put(self, now, key, value, us, flags)
  local ttl = us / 1000000 + MARGIN
  local ok, err = self.dict:safe_set(key, value, ttl, flags)
  if not ok and err == "no memory" and sweep(self, now) then
    ok, err = self.dict:safe_set(key, value, ttl, flags)
  end
  return ok, err
end

return _M
