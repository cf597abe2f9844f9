-- One lock for all workers: a robust, process-shared mutex of the C library. It never yields, costs some tens of nanoseconds when nobody
-- waits, and the kernel hands it on when a worker dies while holding it. A lock made of ngx.shared.DICT:add with a time to live has neither
-- quality: its timeout is judged by each worker's cached wall clock, and a worker that is stopped for longer than that wakes up inside somebody
-- else's turn. docs/adr has the comparison.
--
-- The edge's turn is no protected call: LuaJIT compiles no way out of one, and would interpret most turns. Should an error ever end a turn, its
-- worker still has the lock, knows it, and goes on with it, or gives it back within a second (`mend`); until then it is to the others as if it were
-- stopped.
--
-- The mutex lies in the memory of the zone that it guards, in a slab of its own, so it comes and goes with what it guards: over a reload
-- both stay, and a zone of another size is another zone with another lock. Where it lies is an entry of the zone.

local ffi = require "ffi"
local clock = require "sluice.clock"
local slab = require "sluice.limit.slab"

local C = ffi.C
local cast = ffi.cast
local address_of, pointer = slab.address, slab.pointer
local now_us = clock.now

ffi.cdef [[
typedef struct { char mutex[64]; double sweep_at, beside; } sluice_lock_t;
int sluice_mutexattr_init(void *attr) __asm__("pthread_mutexattr_init");
int sluice_mutexattr_setpshared(void *attr, int shared) __asm__("pthread_mutexattr_setpshared");
int sluice_mutexattr_setrobust(void *attr, int robust) __asm__("pthread_mutexattr_setrobust");
int sluice_mutex_init(void *mutex, const void *attr) __asm__("pthread_mutex_init");
int sluice_mutex_trylock(void *mutex) __asm__("pthread_mutex_trylock");
int sluice_mutex_timedlock(void *mutex, const long *deadline) __asm__("pthread_mutex_timedlock");
int sluice_mutex_consistent(void *mutex) __asm__("pthread_mutex_consistent");
int sluice_mutex_unlock(void *mutex) __asm__("pthread_mutex_unlock");
]]

local KEY = "sluice: lock"
local SIZE = ffi.sizeof("sluice_lock_t")
local SHARED, ROBUST = 1, 1
local EBUSY, ETIMEDOUT, EOWNERDEAD = 16, 110, 130 -- Linux, glibc and musl

-- A turn under the lock is a microsecond of work, so a short spin nearly always sees it end. After that the waiter sleeps, for at most WAIT:
-- on a machine that is overloaded, a holder may well be off its processor for a tenth of a second. One that takes longer
-- is stopped. A worker serves thousands of connections that must not stand still with it, so after such a wait it only spins, until it has
-- had a turn again or REST has passed.
local SPINS = 200
local WAIT = 500000 -- us
local REST = 5000000 -- us

-- Whoever empties the zone (flush_all) takes the entry away, and a worker that starts then makes another lock. So each looks this often, in
-- microseconds, whether the entry still names the lock it has.
local LOOK_EVERY = 1000000

local deadline = ffi.new("long[2]")

local _M = {}

local function at(dict, address)
  if not slab.holds(dict, address, SIZE) then
    return nil, ('shdict abused by other users: the entry "%s" is not ours'):format(KEY)
  end
  return cast("sluice_lock_t *", pointer(address))
end

-- make(dict) -> address of a new lock
local function make(dict)
  local attr = ffi.new("char[256]") -- larger than any pthread_mutexattr_t
  local p = slab.allocate(dict, SIZE)
  if not p then
    return nil, "no memory"
  end
  ffi.fill(p, SIZE)
  if C.sluice_mutexattr_init(attr) ~= 0
    or C.sluice_mutexattr_setpshared(attr, SHARED) ~= 0
    or C.sluice_mutexattr_setrobust(attr, ROBUST) ~= 0
    or C.sluice_mutex_init(p, attr) ~= 0
  then
    slab.free(dict, p)
    return nil, "this system has no robust mutex that processes can share"
  end
  return address_of(p)
end

-- find(dict) -> the address in the entry, made if need be
local function find(dict)
  local address = dict:get(KEY)
  if address then
    return address
  end
  local err
  address, err = make(dict)
  if not address then
    return nil, err
  end
  local ok
  ok, err = dict:safe_add(KEY, address)
  if ok then
    return address
  end
  slab.free(dict, pointer(address))
  if err == "exists" then -- another worker was faster
    return dict:get(KEY)
  end
  return nil, err
end

-- of(dict) -> the lock of a shared dict, the same for all workers; or nil, err. It may be called in any phase, by the master too.
function _M.of(dict)
  if jit.os ~= "Linux" then
    return nil, "the lock is written for Linux, not for " .. jit.os
  end
  local done, address, err = pcall(find, dict)
  if not done then
    return nil, tostring(address)
  end
  if not address then
    return nil, err
  end
  local p
  p, err = at(dict, address)
  if not p then
    return nil, err
  end
  return { dict = dict, address = address, p = p, mine = false, look_at = 0, resting_until = 0 }
end

-- wait(lock) -> the result of the last try
local function wait(lock)
  if lock.mine then
    return 0
  end
  local rc = EBUSY
  for _ = 1, SPINS do
    rc = C.sluice_mutex_trylock(lock.p)
    if rc ~= EBUSY then
      break
    end
  end
  if rc == EBUSY and now_us() >= lock.resting_until then
    clock.deadline(WAIT, deadline)
    rc = C.sluice_mutex_timedlock(lock.p, deadline)
    if rc == ETIMEDOUT then
      lock.resting_until = now_us() + REST
    end
  end
  return rc
end

local acquire

-- look(lock, now) -> now, or what acquire says of the lock that has taken the place of this one. Call it under the lock.
local function look(lock, now)
  lock.look_at = now + LOOK_EVERY
  local address = lock.dict:get(KEY)
  if address == lock.address then
    return now
  end
  if not address then -- should there be no room for the entry, the next look finds some
    local _, err = lock.dict:safe_add(KEY, lock.address)
    if err ~= "exists" then
      return now
    end
    address = lock.dict:get(KEY)
  end
  local p, err = at(lock.dict, address)
  lock.mine = false
  C.sluice_mutex_unlock(lock.p)
  if not p then
    return nil, err
  end
  lock.address, lock.p = address, p
  return acquire(lock)
end

-- acquire(lock) -> the time (clock.now) at which the turn begins; or nil and why: another worker has held the lock for too long
function acquire(lock)
  local rc = C.sluice_mutex_trylock(lock.p)
  if rc == EBUSY then
    rc = wait(lock)
  end
  if rc == EOWNERDEAD then
    -- Its owner died in its turn. A bucket is one entry of the zone and is written by one call, so there is nothing to repair.
    C.sluice_mutex_consistent(lock.p)
    rc = 0
  end
  if rc == 0 then
    lock.mine, lock.resting_until = true, 0
    local now = now_us()
    if now < lock.look_at then
      return now
    end
    return look(lock, now)
  end
  if rc == ETIMEDOUT or rc == EBUSY then
    return nil, "another worker holds the lock"
  end
  return nil, "the lock failed with error " .. rc
end

_M.acquire = acquire

function _M.release(lock)
  lock.mine = false
  C.sluice_mutex_unlock(lock.p)
end

-- mend(lock): releases it if an error has ended a turn of this worker that had not. Call it where this worker has no turn.
function _M.mend(lock)
  if lock.mine then
    _M.release(lock)
  end
end

-- sweep_at(lock) -> the time from which on some worker may sweep the zone again; 0 at first. set_sweep_at(lock, time) says when that is. Call
-- them under the lock.
function _M.sweep_at(lock)
  return lock.p.sweep_at
end

function _M.set_sweep_at(lock, time)
  lock.p.sweep_at = time
end

-- beside(lock) -> the address of what else there is in the zone, for whoever opens it; 0 at first. set_beside(lock, address) says where it is.
-- Call them under the lock.
function _M.beside(lock)
  return lock.p.beside
end

function _M.set_beside(lock, address)
  lock.p.beside = address
end

return _M
