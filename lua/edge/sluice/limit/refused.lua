-- Buckets that were found full, as one worker remembers them. As long as a bucket refuses, nobody is admitted and it stays as it is: until then what
-- is here is the bucket itself (over a reload that changes a burst, it may be fuller). In a flood most requests are of clients who have just been
-- refused, and these 256 kB stay near the processor, where to go to the table of all buckets (limit/buckets.lua) is to wait for memory.
--
-- A bucket has two places, in one line of the processor's cache. A new one takes the first, what was there goes to the second, and what was there is
-- forgotten.

local bit = require "bit"
local ffi = require "ffi"

local band, bor, bxor = bit.band, bit.bor, bit.bxor
local cast, copy = ffi.cast, ffi.copy

ffi.cdef [[
typedef struct { double tat; int32_t name[4], frac, unused; } sluice_refused_t;
]]

local PAIRS = 4096
local LINE = 64 -- bytes
local SIZE = ffi.sizeof("sluice_refused_t")
assert(2 * SIZE == LINE)

local memory, places

local _M = {}

-- forget(): all of them
function _M.forget()
  memory = ffi.new("char[?]", (PAIRS + 1) * LINE)
  local address = cast("uintptr_t", memory)
  places = cast("sluice_refused_t *", address + (LINE - address % LINE))
end

_M.forget()

-- is(i, name) -> whether the bucket of this name, four words, is at the i-th place. One that is free has no name, and the instant 0.
local function is(i, name)
  local n = places[i].name
  return bor(bxor(n[0], name[0]), bxor(n[1], name[1]), bxor(n[2], name[2]), bxor(n[3], name[3])) == 0
end

-- recall(h, name) -> tat, frac; or nil. h: a hash of the client's name
function _M.recall(h, name)
  local i = 2 * band(h, PAIRS - 1)
  if not is(i, name) then
    i = i + 1
    if not is(i, name) then
      return nil
    end
  end
  return places[i].tat, places[i].frac
end

-- remember(h, name, tat, frac): a bucket that refuses
function _M.remember(h, name, tat, frac)
  local i = 2 * band(h, PAIRS - 1)
  if not is(i, name) then
    copy(places + i + 1, places + i, SIZE)
  end
  local place = places[i]
  local n = place.name
  n[0], n[1], n[2], n[3] = name[0], name[1], name[2], name[3]
  place.tat, place.frac = tat, frac
end

return _M
