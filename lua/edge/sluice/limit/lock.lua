-- One lock for all workers: a robust, process-shared mutex of the C library, in a page of memory that the master maps before it forks.
-- It never yields, costs about 40 ns when nobody waits, and the kernel hands it on when a worker dies while holding it. A lock made
-- of ngx.shared.DICT:add with a time to live has neither quality: its timeout is judged by each worker's cached wall clock, and a
-- worker that is stopped for longer than that wakes up inside somebody else's turn. docs/adr has the comparison.
--
-- The page outlives a reload, as the zones do: its address is kept in the zone `sluice_state`, and every worker of every generation
-- is a child of the one master that mapped it.

local ffi = require "ffi"
local clock = require "sluice.clock"

local C = ffi.C
local cast = ffi.cast
local tonumber = tonumber

ffi.cdef [[
void *sluice_mmap(void *at, size_t length, int protection, int flags, int fd, long offset) __asm__("mmap");
int sluice_mutexattr_init(void *attr) __asm__("pthread_mutexattr_init");
int sluice_mutexattr_setpshared(void *attr, int shared) __asm__("pthread_mutexattr_setpshared");
int sluice_mutexattr_setrobust(void *attr, int robust) __asm__("pthread_mutexattr_setrobust");
int sluice_mutex_init(void *mutex, const void *attr) __asm__("pthread_mutex_init");
int sluice_mutex_trylock(void *mutex) __asm__("pthread_mutex_trylock");
int sluice_mutex_timedlock(void *mutex, const long *deadline) __asm__("pthread_mutex_timedlock");
int sluice_mutex_consistent(void *mutex) __asm__("pthread_mutex_consistent");
int sluice_mutex_unlock(void *mutex) __asm__("pthread_mutex_unlock");
]]

local PAGE = 4096
local PROT_READ_WRITE = 3
local MAP_SHARED_ANONYMOUS = 0x21
local SHARED, ROBUST = 1, 1
local EBUSY, ETIMEDOUT, EOWNERDEAD = 16, 110, 130 -- Linux, glibc and musl

-- A turn under the lock is a microsecond of work, so a short spin nearly always sees it end. After that the waiter sleeps, for at most WAIT:
-- on a machine that is overloaded, a holder may well be off its processor for some tens of milliseconds. One that takes longer is stopped.
-- A worker serves thousands of connections that must not stand still with it, so after such a wait it only spins, for as long as REST.
local SPINS = 200
local WAIT = 200000 -- us
local REST = 1000000 -- us

local mutex -- void *
local resting_until = 0 -- us, by clock.now()
local deadline = ffi.new("long[2]")

local _M = {}

local function map()
  local page = C.sluice_mmap(nil, PAGE, PROT_READ_WRITE, MAP_SHARED_ANONYMOUS, -1, 0)
  if page == cast("void *", -1) then
    return nil, "mmap failed"
  end
  local attr = ffi.new("char[256]") -- larger than any pthread_mutexattr_t
  if C.sluice_mutexattr_init(attr) ~= 0
    or C.sluice_mutexattr_setpshared(attr, SHARED) ~= 0
    or C.sluice_mutexattr_setrobust(attr, ROBUST) ~= 0
    or C.sluice_mutex_init(page, attr) ~= 0
  then
    return nil, "this system has no robust mutex that processes can share"
  end
  return page
end

-- init(state): call from init_by_lua, which the master runs before it forks. Errors when there can be no lock.
function _M.init(state)
  if jit.os ~= "Linux" then
    error("the edge's lock is written for Linux, not for " .. jit.os, 0)
  end
  local address = state:get("lock")
  if not address then
    local page, err = map()
    if not page then
      error("the edge's lock: " .. err, 0)
    end
    address = tonumber(cast("uintptr_t", page))
    local ok, why = state:safe_set("lock", address)
    if not ok then
      error("the edge's lock: zone sluice_state: " .. why, 0)
    end
  end
  mutex = cast("void *", address)
end

-- wait() -> the result of the last try
local function wait()
  local rc = EBUSY
  for _ = 1, SPINS do
    rc = C.sluice_mutex_trylock(mutex)
    if rc ~= EBUSY then
      break
    end
  end
  if rc == EBUSY and clock.now() >= resting_until then
    clock.deadline(WAIT, deadline)
    rc = C.sluice_mutex_timedlock(mutex, deadline)
    if rc == ETIMEDOUT then
      resting_until = clock.now() + REST
    end
  end
  return rc
end

-- acquire() -> true, or nil and why: another worker has held the lock for too long
function _M.acquire()
  local rc = C.sluice_mutex_trylock(mutex)
  if rc == EBUSY then
    rc = wait()
  end
  if rc == 0 then
    return true
  end
  if rc == EOWNERDEAD then
    -- Its owner died in its turn. A bucket is one entry of the zone and is written by one call, so there is nothing to repair.
    C.sluice_mutex_consistent(mutex)
    return true
  end
  if rc == ETIMEDOUT or rc == EBUSY then
    return nil, "another worker holds the lock"
  end
  return nil, "the lock failed with error " .. rc
end

function _M.release()
  C.sluice_mutex_unlock(mutex)
end

return _M
