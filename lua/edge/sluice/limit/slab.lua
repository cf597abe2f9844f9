-- Memory of a shared dict's zone that is no entry of the dict: all workers have it at the same address, and it comes and goes with the zone. Over a
-- reload it stays.

local ffi = require "ffi"

local C = ffi.C
local cast = ffi.cast
local tonumber = tonumber

ffi.cdef([[
void *sluice_shdict_zone(void *udata) __asm__("ngx_]] .. ngx.config.subsystem .. [[_lua_ffi_shdict_udata_to_zone");
void *sluice_slab_alloc(void *pool, size_t size) __asm__("ngx_slab_alloc");
void sluice_slab_free(void *pool, void *p) __asm__("ngx_slab_free");
int sluice_madvise(void *p, size_t size, int advice) __asm__("madvise");
]])

local REMOVE = 9 -- Linux: shared memory is given back, and reads as zeroes

local _M = {}

-- span(dict) -> the slab pool of the dict, and the addresses it spans
local function span(dict)
  local zone = cast("void **", C.sluice_shdict_zone(dict[1]))
  -- ngx_shm_zone_t begins with a pointer and an ngx_shm_t, which begins with address and size.
  local first, size = tonumber(cast("uintptr_t", zone[1])), tonumber(cast("uintptr_t", zone[2]))
  if size ~= dict:capacity() then
    error("the shared memory of this nginx is laid out in a way that is not known here", 0)
  end
  return zone[1], first, first + size
end

-- holds(dict, address, size) -> whether so many bytes from there on are the zone's
function _M.holds(dict, address, size)
  local _, first, last = span(dict)
  return type(address) == "number" and address >= first and address <= last - size
end

-- allocate(dict, size) -> a pointer; or nil: there is no room
function _M.allocate(dict, size)
  local p = C.sluice_slab_alloc(span(dict), size)
  return p ~= nil and p or nil
end

-- clear(p, size): makes it all zeroes. Whole pages of it take no memory until somebody writes to them.
function _M.clear(p, size)
  if C.sluice_madvise(p, size, REMOVE) ~= 0 then
    ffi.fill(p, size)
  end
end

function _M.free(dict, p)
  C.sluice_slab_free(span(dict), p)
end

-- address(p) -> a number; pointer(address) is its opposite
function _M.address(p)
  return tonumber(cast("uintptr_t", p))
end

function _M.pointer(address)
  return cast("void *", address)
end

return _M
