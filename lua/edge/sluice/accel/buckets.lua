-- A hash table of buckets of a fixed size in memory that all workers share, 32 bytes a bucket, for accel/store.lua.
-- Writers must hold the lock.
--
-- A bucket has a name of 16 bytes and may be in one of two sets of eight. Each client has two pages of memory, of
-- sixteen sets each; the rule selects the set. So all buckets of a client are in one page in most cases. This saves
-- time, because reading a page that is not in the processor's cache takes longer than the rest of a decision.
--
-- A new bucket goes to the first of its two sets; when that is half full, to the one with more room (balanced
-- allocations: Azar, Broder, Karlin, Upfal 1994). There it replaces the bucket that has been empty for longest. A
-- bucket in use is never replaced: when both sets are full of buckets in use, there is no room. So nothing is swept,
-- freed or moved.
--
-- Readers need no lock: the instant at which a bucket is empty (tat) is written last, as eight aligned bytes, and a
-- name is replaced only when that instant has passed. A worker that is killed during a write leaves an empty bucket
-- with a new name, or a bucket that is wrong by less than a microsecond.
--
-- The eight buckets of a set are compared by the C library, or by code without branches, because LuaJIT compiles each
-- path through a branch separately.

local bit = require "bit"
local ffi = require "ffi"

local band, bor, bxor, rol, rshift, tobit = bit.band, bit.bor, bit.bxor, bit.rol, bit.rshift, bit.tobit
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
local FIRST = 4 -- buckets in use in the first set before the second one is considered
local PAGE, SETS = 4096, 16
assert(ffi.sizeof("sluice_bucket_set_t") * SETS == PAGE)
assert(ffi.sizeof("wchar_t") == 4) -- for wmemchr
local HEAD_POINTER = ffi.typeof("sluice_bucket_head_t *")

local _M = {}

-- mix and final are the two parts of Bob Jenkins' lookup3 (2006). Sums are computed in 64 bits and truncated: LuaJIT
-- compiles that to one instruction.

-- add(a, b) -> the low 32 bits of the sum
local function add(a, b)
  return (tobit(a + 0LL + b))
end

local function sub(a, b)
  return (tobit(a + 0LL - b))
end

-- mix(a, b, c) -> three words, each of which depends on all three
local function mix(a, b, c)
  a = sub(a, c) a = bxor(a, rol(c, 4)) c = add(c, b)
  b = sub(b, a) b = bxor(b, rol(a, 6)) a = add(a, c)
  c = sub(c, b) c = bxor(c, rol(b, 8)) b = add(b, a)
  a = sub(a, c) a = bxor(a, rol(c, 16)) c = add(c, b)
  b = sub(b, a) b = bxor(b, rol(a, 19)) a = add(a, c)
  c = sub(c, b) c = bxor(c, rol(b, 4)) b = add(b, a)
  return a, b, c
end

-- final(a, b, c) -> three words; c depends on every bit
local function final(a, b, c)
  c = bxor(c, b) c = sub(c, rol(b, 14))
  a = bxor(a, c) a = sub(a, rol(c, 11))
  b = bxor(b, a) b = sub(b, rol(a, 25))
  c = bxor(c, b) c = sub(c, rol(b, 16))
  a = bxor(a, c) a = sub(a, rol(c, 4))
  b = bxor(b, a) b = sub(b, rol(a, 14))
  c = bxor(c, b) c = sub(c, rol(b, 24))
  return a, b, c
end

-- make(memory, size, random): makes an empty table in memory that is all zeroes and begins at a page. size: bytes, two
-- pages at least; random: 16 random bytes, so that clients cannot choose names that fall into one set
function _M.make(memory, size, random)
  local head = cast(HEAD_POINTER, memory)
  ffi.copy(head.seed, random, 16)
  head.pages = floor(size / PAGE) - 1
end

-- open(memory) -> the table that was made in this memory
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

-- search(t, set, mark, name) -> the slot of the bucket in this set, or -1: for the few cases in which several slots
-- have the mark. A slot with this name and another mark does not count: a worker was killed while it made that bucket.
local function search(t, set, mark, name)
  for slot = 0, SLOTS - 1 do
    if t.sets[set].mark[slot] == mark and same(t.sets[set].name[slot], name) then
      return set * SLOTS + slot
    end
  end
  return -1
end

-- among(t, set, mark, name) -> the slot of the bucket, or -1: it is not in this set
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

-- set_on(page, h, tag) -> the set of a rule in a client's page. Two rules have the same set for some clients only.
local function set_on(page, h, tag)
  local x = add(h, tag)
  x = bxor(x, rol(x, 7))
  return page * SETS + band(add(x, rol(x, 11)), SETS - 1)
end

-- aim(t, bucket, client, h, g): sets `bucket` to the bucket of a client. client: the words of its name; h, g: its hash.
-- A bucket is
--   tag   of its rule, four words like a name
--   name  the client's name combined with the tag
--   a, b  its two sets
--   mark  a short form of its name
function _M.aim(t, bucket, client, h, g)
  local name, tag = bucket.name.words, bucket.tag.words
  name[0], name[1] = bxor(client[0], tag[0]), bxor(client[1], tag[1])
  name[2], name[3] = bxor(client[2], tag[2]), bxor(client[3], tag[3])
  bucket.a = set_on(floor(rshift(h, 1) * t.scale), h, tag[0])
  bucket.b = set_on(floor(rshift(g, 1) * t.scale), g, tag[0])
  bucket.mark = bor(bxor(h, rol(g, 13), tag[1]), 1) -- 0 is a slot that was never written
end

-- find(t, bucket) -> its slot, or -1
local function find(t, bucket)
  local name, mark = bucket.name.words, bucket.mark
  local place = among(t, bucket.a, mark, name)
  return place >= 0 and place or among(t, bucket.b, mark, name)
end

_M.find = find

-- is(t, place, bucket) -> whether this bucket is in the slot
function _M.is(t, place, bucket)
  return same(t.sets[rshift(place, 3)].name[band(place, SLOTS - 1)], bucket.name.words)
end

-- still(t, place, bucket) -> the same, read again from memory: for callers without the lock
function _M.still(t, place, bucket)
  return C.sluice_same_bucket(t.sets[rshift(place, 3)].name[band(place, SLOTS - 1)], bucket.name.words, 16) == 0
end

-- held(tat, now) -> how many of eight buckets are in use
local function held(tat, now)
  local before = now - 1 -- a bucket with tat == now may hold a part of a microsecond, and is in use
  return min(max(tat[0] - before, 0), 1) + min(max(tat[1] - before, 0), 1)
    + min(max(tat[2] - before, 0), 1) + min(max(tat[3] - before, 0), 1)
    + min(max(tat[4] - before, 0), 1) + min(max(tat[5] - before, 0), 1)
    + min(max(tat[6] - before, 0), 1) + min(max(tat[7] - before, 0), 1)
end

-- oldest(tat) -> which of eight buckets has the lowest tat. Microseconds since boot are below 2^50, so the products are
-- exact.
local function oldest(tat)
  return min(tat[0] * 8, tat[1] * 8 + 1, tat[2] * 8 + 2, tat[3] * 8 + 3,
    tat[4] * 8 + 4, tat[5] * 8 + 5, tat[6] * 8 + 6, tat[7] * 8 + 7) % 8
end

-- claim(t, bucket, now) -> its slot, made if necessary; or nil: there is no room. A new bucket is empty, and a later
-- claim may replace it while it is.
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
  set.frac[slot] = 0 -- the old fraction is in the unit of another rule: in the unit of this one it may be minutes
  mine[0], mine[1], mine[2], mine[3] = name[0], name[1], name[2], name[3]
  set.mark[slot] = bucket.mark
  return index * SLOTS + slot
end

-- read(t, place) -> tat, frac
function _M.read(t, place)
  local set, slot = t.sets[rshift(place, 3)], band(place, SLOTS - 1)
  return set.tat[slot], set.frac[slot]
end

-- keep(t, place, now): no claim replaces the bucket before the next microsecond, even when it is empty
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

-- capacity(t) -> for how many buckets there is room. There are more slots, but when seven of ten are in use, a new
-- bucket may find both its sets full.
function _M.capacity(t)
  return floor(t.n * SLOTS * 0.7)
end

local SAMPLE = 16384 -- sets

-- live(t, now) -> how many buckets are in use; an estimate for a large table, of which a sample is read
function _M.live(t, now)
  local every = max(1, floor(t.n / SAMPLE))
  local seen, total = 0, 0
  for i = 0, t.n - 1, every do
    seen, total = seen + 1, total + held(t.sets[i].tat, now)
  end
  return floor(total * t.n / seen + 0.5)
end

return _M
