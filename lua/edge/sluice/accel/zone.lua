-- Memory of a shared dict's zone that is not an entry of the dict, and a lock in it, for accel/store.lua. All workers
-- see the zone at one address; its memory and the lock stay over a reload.
--
-- The lock is a robust, process-shared mutex of the C library. It never yields, takes some tens of nanoseconds when it
-- is free, and the kernel passes it on when its holder exits. The address of the lock is an entry of the dict.
--
-- It relies on this: ngx_shm_zone_t begins with a pointer and an ngx_shm_t, which begins with address and size; the
-- address is that of the slab pool. The size is compared with the capacity of each dict when this module is loaded.

local ffi = require "ffi"
local clock = require "sluice.clock"
require "resty.core.shdict"

local C = ffi.C
local cast = ffi.cast
local floor, tonumber = math.floor, tonumber
local now_us = clock.now

ffi.cdef([[
void *sluice_shdict_zone(void *udata) __asm__("ngx_]] .. ngx.config.subsystem .. [[_lua_ffi_shdict_udata_to_zone");
void *sluice_slab_alloc(void *pool, size_t size) __asm__("ngx_slab_alloc");
void sluice_slab_free(void *pool, void *p) __asm__("ngx_slab_free");
int sluice_madvise(void *p, size_t size, int advice) __asm__("madvise");
int sluice_clock_gettime_of(int clock, long *timespec) __asm__("clock_gettime");
typedef struct { char mutex[64]; double table; } sluice_lock_t;
int sluice_mutexattr_init(void *attr) __asm__("pthread_mutexattr_init");
int sluice_mutexattr_setpshared(void *attr, int shared) __asm__("pthread_mutexattr_setpshared");
int sluice_mutexattr_setrobust(void *attr, int robust) __asm__("pthread_mutexattr_setrobust");
int sluice_mutex_init(void *mutex, const void *attr) __asm__("pthread_mutex_init");
int sluice_mutex_trylock(void *mutex) __asm__("pthread_mutex_trylock");
int sluice_mutex_timedlock(void *mutex, const long *deadline) __asm__("pthread_mutex_timedlock");
int sluice_mutex_consistent(void *mutex) __asm__("pthread_mutex_consistent");
int sluice_mutex_unlock(void *mutex) __asm__("pthread_mutex_unlock");
]])

local KEY = "sluice: table"
local PAGE, RESERVE = 4096, 8192 -- bytes of the zone for the entries of its dict
local SIZE = ffi.sizeof("sluice_lock_t")
local SHARED, ROBUST = 1, 1
local EBUSY, ETIMEDOUT, EOWNERDEAD = 16, 110, 130 -- Linux, glibc and musl
local REMOVE, REALTIME = 9, 0 -- Linux

-- A waiter tries SPINS times, then sleeps until it has the lock, for at most WAIT. As in limit/lock.lua, a worker
-- whose wait has timed out does not sleep again until it has had the lock, or until REST has passed.
local SPINS = 200
local WAIT = 500000 -- us
local REST = 5000000 -- us

local deadline = ffi.new("long[2]")

local _M = {}

local function pointer(address)
  return cast("char *", cast("void *", address))
end

-- span(dict) -> the slab pool of the dict, and the addresses of its first byte and behind its last one
local function span(dict)
  local zone = cast("void **", C.sluice_shdict_zone(dict[1]))
  local first, size = tonumber(cast("uintptr_t", zone[1])), tonumber(cast("uintptr_t", zone[2]))
  if size ~= dict:capacity() then
    error("the layout of ngx_shm_zone_t is not known", 0)
  end
  return zone[1], first, first + size
end

-- holds(dict, address, size) -> whether these bytes are in the zone
local function holds(dict, address, size)
  local _, first, last = span(dict)
  return type(address) == "number" and address >= first and address <= last - size
end

if jit.os ~= "Linux" then
  error("the mutex is written for Linux, not for " .. jit.os, 0)
end
local _ = C.sluice_slab_alloc ~= nil and C.sluice_slab_free ~= nil -- raises an error when a symbol is missing
for _, dict in pairs(ngx.shared) do
  span(dict)
end

local attr = ffi.new("char[256]") -- larger than any pthread_mutexattr_t
if C.sluice_mutexattr_init(attr) ~= 0 or C.sluice_mutexattr_setpshared(attr, SHARED) ~= 0
  or C.sluice_mutexattr_setrobust(attr, ROBUST) ~= 0 then
  error("this system has no robust mutex that processes can share", 0)
end

-- make(dict) -> the address of a new lock
local function make(dict)
  local p = C.sluice_slab_alloc(span(dict), SIZE)
  if p == nil then
    error("no memory", 0)
  end
  ffi.fill(p, SIZE)
  C.sluice_mutex_init(p, attr) -- does not fail with attributes that are supported
  return tonumber(cast("uintptr_t", p))
end

-- open(dict) -> the lock of a shared dict. Several workers may open it at the same time.
function _M.open(dict)
  local address = dict:get(KEY)
  if not address then
    local made = make(dict)
    if not dict:safe_add(KEY, made) then -- another worker was faster, or there is no room
      C.sluice_slab_free(span(dict), pointer(made))
    end
    address = dict:get(KEY)
  end
  if not holds(dict, address, SIZE) then
    error("the dict has no lock", 0)
  end
  return { dict = dict, p = cast("sluice_lock_t *", pointer(address)), held = false, resting_until = 0 }
end

local function set_deadline(us)
  C.sluice_clock_gettime_of(REALTIME, deadline)
  local ns = tonumber(deadline[1]) + us * 1000
  deadline[0] = deadline[0] + floor(ns / 1000000000)
  deadline[1] = ns % 1000000000
end

-- wait(lock) -> the result of the last try
local function wait(lock)
  if lock.held then -- an error ended the last turn of this worker
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
    set_deadline(WAIT)
    rc = C.sluice_mutex_timedlock(lock.p, deadline)
    if rc == ETIMEDOUT then
      lock.resting_until = now_us() + REST
    end
  end
  return rc
end

-- acquire(lock) -> the time at which the turn begins; or nil, err: another worker has had the lock for too long
function _M.acquire(lock)
  local rc = C.sluice_mutex_trylock(lock.p)
  if rc == EBUSY then
    rc = wait(lock)
  end
  if rc == EOWNERDEAD then -- a bucket is wrong by less than a microsecond at most: there is nothing to repair
    C.sluice_mutex_consistent(lock.p)
    rc = 0
  end
  if rc == 0 then
    lock.held, lock.resting_until = true, 0
    return now_us()
  elseif rc == ETIMEDOUT or rc == EBUSY then
    return nil, "another worker holds the lock"
  end
  return nil, "the lock failed with error " .. rc
end

function _M.release(lock)
  lock.held = false
  C.sluice_mutex_unlock(lock.p)
end

-- make_memory(lock, fill): allocates the memory, if there is room. lock.p.table is the negative address of the memory
-- until it is filled. If this worker is killed before that, the next worker frees the memory and starts again. The
-- address must therefore be stored before the memory is allocated. It is found by allocating one page and freeing it,
-- because the pool allocates pages at the beginning of its free memory.
local function make_memory(lock, fill)
  local pool = span(lock.dict)
  local size = floor((lock.dict:free_space() - RESERVE) / PAGE) * PAGE
  local page = size > PAGE and C.sluice_slab_alloc(pool, PAGE) or nil
  if page == nil then
    return
  end
  C.sluice_slab_free(pool, page)
  lock.p.table = -tonumber(cast("uintptr_t", page))
  local p = C.sluice_slab_alloc(pool, size)
  local address = tonumber(cast("uintptr_t", p)) -- 0: there is no room in one piece
  lock.p.table = -address
  if p == nil then
    return
  end
  if C.sluice_madvise(p, size, REMOVE) ~= 0 then -- it zeroes pages, which take no memory until they are written
    ffi.fill(p, size)
  end
  fill(p, size)
  lock.p.table = address
end

-- memory(lock, fill) -> a pointer to the memory of the zone that its dict does not need. It is allocated once, and
-- survives a reload: fill(pointer, size) gets it, all zeroes, before another worker can.
function _M.memory(lock, fill)
  local _, err = _M.acquire(lock)
  if err then
    error(err, 0)
  end
  local state = lock.p
  if state.table < 0 then
    C.sluice_slab_free(span(lock.dict), pointer(-state.table)) -- changes nothing if it is free already
    state.table = 0
  end
  if state.table == 0 then
    make_memory(lock, fill)
  end
  _M.release(lock)
  if state.table == 0 then
    error("no memory", 0)
  end
  return pointer(state.table)
end

return _M
