-- The deny cache of one worker, for accel/store.lua: buckets that were found full. While a bucket refuses, no request
-- is admitted by it and it does not change, so a copy decides like the bucket. (During a reload that raises a burst,
-- new workers may still fill the bucket. Then the copy refuses for a shorter time; after that, the bucket is read.) In
-- a flood, most requests are from clients that were just refused. The 256 kB of this cache stay in the processor's
-- cache; the table of all buckets does not.
--
-- A bucket may be in one of two slots, which share a cache line of the processor. A new bucket takes the first slot,
-- and the bucket that was there moves to the second.

local bit = require "bit"
local ffi = require "ffi"

local band, bor, bxor = bit.band, bit.bor, bit.bxor
local cast, copy = ffi.cast, ffi.copy

ffi.cdef [[
typedef struct { double tat; int32_t name[4], frac, unused; } sluice_denied_t;
]]

local PAIRS = 4096
local LINE = 64 -- bytes
local SIZE = ffi.sizeof("sluice_denied_t")
assert(2 * SIZE == LINE)

local memory, slots

local _M = {}

-- clear() empties the cache
function _M.clear()
  memory = ffi.new("char[?]", (PAIRS + 1) * LINE)
  local address = cast("uintptr_t", memory)
  slots = cast("sluice_denied_t *", address + (LINE - address % LINE))
end

_M.clear()

-- is(i, name) -> whether the bucket of this name, four words, is in the i-th slot. A free slot has no name, and the
-- instant 0.
local function is(i, name)
  local n = slots[i].name
  return bor(bxor(n[0], name[0]), bxor(n[1], name[1]), bxor(n[2], name[2]), bxor(n[3], name[3])) == 0
end

-- get(h, name) -> tat, frac; or nil. h: a hash of the client's name
function _M.get(h, name)
  local i = 2 * band(h, PAIRS - 1)
  if not is(i, name) then
    i = i + 1
    if not is(i, name) then
      return nil
    end
  end
  return slots[i].tat, slots[i].frac
end

-- set(h, name, tat, frac) stores a bucket that refuses
function _M.set(h, name, tat, frac)
  local i = 2 * band(h, PAIRS - 1)
  if not is(i, name) then
    copy(slots + i + 1, slots + i, SIZE)
  end
  local slot = slots[i]
  local n = slot.name
  n[0], n[1], n[2], n[3] = name[0], name[1], name[2], name[3]
  slot.tat, slot.frac = tat, frac
end

return _M
