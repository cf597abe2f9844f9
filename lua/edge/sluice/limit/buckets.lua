-- The buckets of all rules: a hash table of a fixed size in memory that all workers share, 32 bytes a bucket. Whoever writes has the lock.
--
-- A bucket is named by 16 bytes (limit/name.lua) and may be in one of two sets of eight. Each client has two pages of memory, of sixteen sets
-- each, and in which set of them the bucket is, its rule decides: so all buckets of a client are in one place, mostly. To go to a page that the
-- processor has forgotten takes longer than all that is done here.
--
-- A new bucket goes to the first of its two sets; or, when that is half full, to the one that has more room (balanced allocations: Azar, Broder,
-- Karlin, Upfal 1994). There it takes the place of the bucket that has been empty for longest: one that still holds something is never pushed out,
-- and where both sets are full of those there is no room. So nothing is ever swept, freed or moved.
--
-- Whoever does not write reads without the lock: what is written last is the instant, of eight aligned bytes, and a name changes only where the
-- instant is over. A worker that dies half-way leaves an empty bucket with a new name, or an old one that is wrong by less than a microsecond.
--
-- The eight of a set are compared with each other by the C library, or without a branch, because LuaJIT compiles every way through a piece of code by
-- itself.

local bit = require "bit"
local ffi = require "ffi"
local lookup3 = require "sluice.lookup3"

local band, bor, bxor, rol, rshift = bit.band, bit.bor, bit.bxor, bit.rol, bit.rshift
local add, final, mix = lookup3.add, lookup3.final, lookup3.mix
local floor, max, min = math.floor, math.max, math.min
local tonumber = tonumber
local C = ffi.C
local cast = ffi.cast

ffi.cdef [[
typedef struct { int32_t mark[8], frac[8]; double tat[8]; int32_t name[8][4]; } sluice_bucket_set_t;
int sluice_same_bucket(const int32_t *mine, const int32_t *name, size_t n) __asm__("memcmp");
const int32_t *sluice_mark(const int32_t *marks, int32_t mark, size_t n) __asm__("wmemchr");
typedef struct { int32_t seed[4], pages; } sluice_bucket_head_t;
]]

local SLOTS = 8
local FIRST = 4 -- buckets that a set has before the other one is considered
local PAGE, SETS = 4096, 16
assert(ffi.sizeof("sluice_bucket_set_t") * SETS == PAGE)
assert(ffi.sizeof("wchar_t") == 4) -- for wmemchr
local HEAD_POINTER = ffi.typeof("sluice_bucket_head_t *")

local _M = {}

-- size(pages) -> how many bytes a table of so many pages takes
function _M.size(pages)
  return (pages + 1) * PAGE
end

-- pages(size) -> how many pages there are room for in so many bytes
function _M.pages(size)
  return floor(size / PAGE) - 1
end

-- make(memory, pages, random): an empty table in memory that is all zeroes and begins with a page. random: 16 bytes that clients do not know, or they
-- could make up names that belong into one set.
function _M.make(memory, pages, random)
  local head = cast(HEAD_POINTER, memory)
  ffi.copy(head.seed, random, 16)
  head.pages = pages
end

-- open(memory) -> the table that was made there
function _M.open(memory)
  local head = cast(HEAD_POINTER, memory)
  local seed, n = head.seed, head.pages
  return {
    sets = cast("sluice_bucket_set_t *", cast("char *", memory) + PAGE), n = n * SETS, scale = n / 2147483648,
    a = seed[0], b = seed[1], c = seed[2], d = seed[3], secret = ffi.string(seed, 16),
  }
end

-- hash(t, name) -> two numbers of 32 bits for a client's name (Bob Jenkins' lookup3, hashword2, for four words)
function _M.hash(t, name)
  local a, b, c = add(t.a, name[0]), add(t.b, name[1]), add(t.c, name[2])
  a, b, c = mix(a, b, c)
  local _
  _, b, c = final(add(a, add(name[3], t.d)), b, c)
  return c, b
end

local function same(mine, name)
  return bor(bxor(mine[0], name[0]), bxor(mine[1], name[1]), bxor(mine[2], name[2]), bxor(mine[3], name[3])) == 0
end

-- search(t, set, mark, name) -> the place of the bucket in this set, or -1: for the few cases in which the mark is there more than once. A name
-- without its mark was left by a worker that died, and is nobody's.
local function search(t, set, mark, name)
  for slot = 0, SLOTS - 1 do
    if t.sets[set].mark[slot] == mark and same(t.sets[set].name[slot], name) then
      return set * SLOTS + slot
    end
  end
  return -1
end

-- among(t, set, mark, name) -> the place of the bucket, or -1: it is not in this set
local function among(t, set, mark, name)
  local marks = t.sets[set].mark
  local at = C.sluice_mark(marks, mark, SLOTS)
  if at == nil then
    return -1
  end
  local slot = band(tonumber(at - marks), SLOTS - 1)
  if same(t.sets[set].name[slot], name) then
    return set * SLOTS + slot
  end
  return search(t, set, mark, name)
end

-- set_on(page, h, tag) -> the set. For some clients two rules have the same set, and not for all or none.
local function set_on(page, h, tag)
  local x = add(h, tag)
  x = bxor(x, rol(x, 7))
  return page * SETS + band(add(x, rol(x, 11)), SETS - 1)
end

-- aim(t, bucket, whose, h, g): the bucket of one client from here on. whose: the client's name; h, g: the hash of that. A bucket is
--   tag   of its rule, four words like a name
--   name  both together
--   a, b  its two sets
--   mark  a short form of its name
function _M.aim(t, bucket, whose, h, g)
  local name, tag = bucket.name.words, bucket.tag.words
  name[0], name[1], name[2], name[3] = bxor(whose[0], tag[0]), bxor(whose[1], tag[1]), bxor(whose[2], tag[2]), bxor(whose[3], tag[3])
  bucket.a = set_on(floor(rshift(h, 1) * t.scale), h, tag[0])
  bucket.b = set_on(floor(rshift(g, 1) * t.scale), g, tag[0])
  bucket.mark = bor(bxor(h, rol(g, 13), tag[1]), 1) -- 0 is what nobody has written
end

-- find(t, bucket) -> its place, or -1
local function find(t, bucket)
  local name, mark = bucket.name.words, bucket.mark
  local place = among(t, bucket.a, mark, name)
  return place >= 0 and place or among(t, bucket.b, mark, name)
end

_M.find = find

-- is(t, place, bucket) -> whether this bucket is there
function _M.is(t, place, bucket)
  return same(t.sets[rshift(place, 3)].name[band(place, SLOTS - 1)], bucket.name.words)
end

-- still(t, place, bucket) -> the same, read anew from the memory: for whoever has no lock
function _M.still(t, place, bucket)
  return C.sluice_same_bucket(t.sets[rshift(place, 3)].name[band(place, SLOTS - 1)], bucket.name.words, 16) == 0
end

-- held(tat, now) -> how many of eight buckets hold something
local function held(tat, now)
  local before = now - 1 -- a part of a microsecond may be left
  return min(max(tat[0] - before, 0), 1) + min(max(tat[1] - before, 0), 1) + min(max(tat[2] - before, 0), 1) + min(max(tat[3] - before, 0), 1)
    + min(max(tat[4] - before, 0), 1) + min(max(tat[5] - before, 0), 1) + min(max(tat[6] - before, 0), 1) + min(max(tat[7] - before, 0), 1)
end

-- oldest(tat) -> which of eight is or was empty first. Microseconds since boot are below 2^50.
local function oldest(tat)
  return min(tat[0] * 8, tat[1] * 8 + 1, tat[2] * 8 + 2, tat[3] * 8 + 3, tat[4] * 8 + 4, tat[5] * 8 + 5, tat[6] * 8 + 6, tat[7] * 8 + 7) % 8
end

-- claim(t, bucket, now) -> its place, made if need be; or nil: there is no room. What is made is empty, and if it still is with the next
-- claim, that may take it.
function _M.claim(t, bucket, now)
  local place = find(t, bucket)
  if place >= 0 then
    return place
  end
  local a, b, name = bucket.a, bucket.b, bucket.name.words
  local in_a, in_b = held(t.sets[a].tat, now), held(t.sets[b].tat, now)
  if min(in_a, in_b) == SLOTS then
    return nil
  end
  local index = a + (b - a) * min(max(in_a - max(in_b, FIRST - 1), 0), 1)
  local set = t.sets[index]
  local slot = oldest(set.tat)
  local mine = set.name[slot]
  set.frac[slot] = 0 -- what is less than a microsecond by the old bucket's rule may be minutes by this one's
  mine[0], mine[1], mine[2], mine[3] = name[0], name[1], name[2], name[3]
  set.mark[slot] = bucket.mark
  return index * SLOTS + slot
end

-- read(t, place) -> tat, frac
function _M.read(t, place)
  local set, slot = t.sets[rshift(place, 3)], band(place, SLOTS - 1)
  return set.tat[slot], set.frac[slot]
end

-- keep(t, place, now): no claim takes the place before the next microsecond, even if the bucket is empty
function _M.keep(t, place, now)
  local set, slot = t.sets[rshift(place, 3)], band(place, SLOTS - 1)
  if set.tat[slot] < now then
    set.frac[slot] = 0
    set.tat[slot] = now
  end
end

function _M.write(t, place, tat, frac)
  local set, slot = t.sets[rshift(place, 3)], band(place, SLOTS - 1)
  set.frac[slot] = frac
  set.tat[slot] = tat
end

-- capacity(t) -> for how many buckets there is room. There are more places, but when seven of ten hold something a new bucket may find both its sets
-- full.
function _M.capacity(t)
  return floor(t.n * SLOTS * 0.7)
end

local SAMPLE = 16384 -- sets

-- live(t, now) -> how many buckets hold something; of a large table an estimate, for one set in so many is looked at
function _M.live(t, now)
  local every = max(1, floor(t.n / SAMPLE))
  local seen, total = 0, 0
  for i = 0, t.n - 1, every do
    seen, total = seen + 1, total + held(t.sets[i].tat, now)
  end
  return floor(total * t.n / seen + 0.5)
end

return _M
