-- Accelerator: the buckets of the policy's rules in a table of their own, in the memory of the shared dict, under a
-- mutex. Stands in for sluice/limit/store.lua, which describes the interface. A bucket takes 46 bytes of the zone
-- instead of 129.

local buckets = require "sluice.accel.buckets"
local deny_cache = require "sluice.accel.deny_cache"
local clock = require "sluice.clock"
local ffi = require "ffi"
local gcra = require "sluice.limit.gcra"
local random = require "sluice.random"
local zone = require "sluice.accel.zone"

local copy = ffi.copy
local decide, wait_of = gcra.decide, gcra.wait
local aim, claim, find = buckets.aim, buckets.claim, buckets.find
local hash, is, keep = buckets.hash, buckets.is, buckets.keep
local read_at, write_at, still = buckets.read, buckets.write, buckets.still
local get_denied, set_denied = deny_cache.get, deny_cache.set
local acquire, release = zone.acquire, zone.release
local md5 = ngx.md5_bin
local now_us = clock.now

ffi.cdef [[
typedef union { int32_t words[4]; unsigned char bytes[16]; } sluice_client_t;
]]

local DIRECT = 8 -- bytes: a client that is not longer, such as an address, is its own name
local MAX_NAMES = 16384

local lock, t -- the lock, and the table that it protects

-- The name of the latest client, its hash, and the names of other clients by MD5.
local last, last_name, h, g = nil, ffi.new("sluice_client_t"), 0, 0
local names, count = {}, 0

local _M = {}

function _M.init(shared_dict)
  lock = zone.open(shared_dict)
  local seed = random.bytes(16)
  t = buckets.open(zone.memory(lock, function(p, size) buckets.make(p, size, seed) end))
  last, names, count = nil, {}, 0
  deny_cache.clear()
end

local function new_name()
  return ffi.new("sluice_client_t")
end

-- digest(client) -> the name of a client by MD5. The secret keeps clients from finding two names with one digest.
local function digest(client)
  local name = new_name()
  copy(name.bytes, md5(t.secret .. client), 16)
  return name
end

function _M.prepare(rule)
  rule.bucket = { name = new_name(), tag = digest(rule.prefix), a = 0, b = 0, mark = 0, place = -1 }
end

-- name_of(client): sets last_name, h and g
local function name_of(client)
  if client == last then
    return
  end
  local words = last_name.words
  if #client <= DIRECT then
    words[0], words[1], words[2], words[3] = 0, 0, 0, #client
    copy(last_name.bytes, client, #client)
  else
    local name = names[client]
    if not name then
      if count >= MAX_NAMES then
        names, count = {}, 0
      end
      name = digest(client)
      names[client], count = name, count + 1
    end
    local other = name.words
    words[0], words[1], words[2], words[3] = other[0], other[1], other[2], other[3]
  end
  h, g = hash(t, words)
  last = client
end

function _M.bucket(rule, client)
  name_of(client)
  aim(t, rule.bucket, last_name.words, h, g)
  return rule.bucket
end

function _M.enter()
  return acquire(lock)
end

function _M.leave()
  release(lock)
end

function _M.read(bucket)
  local place = find(t, bucket)
  bucket.place = place
  if place >= 0 then
    return read_at(t, place)
  end
  return nil, 0
end

function _M.is_current(bucket)
  return still(t, bucket.place, bucket)
end

-- An earlier reserve of the same turn may have replaced this bucket if it was empty. Then it is made again.
function _M.reserve(bucket, now)
  local place = bucket.place
  if place < 0 or not is(t, place, bucket) then
    place = claim(t, bucket, now)
    if not place then
      return nil, "no memory"
    end
    bucket.place = place
  end
  keep(t, place, now)
  return true
end

function _M.write(bucket, _, _, _, tat, frac)
  write_at(t, bucket.place, tat, frac)
end

-- The clock is read after the bucket. If another worker writes the bucket in between, it becomes fuller, and a refusal
-- is still right. Another worker may also replace it by another bucket, so a refusal counts only if it is still there.
function _M.refuses(rule, client)
  name_of(client)
  local bucket = rule.bucket
  aim(t, bucket, last_name.words, h, g)
  local words = bucket.name.words
  local tat, frac = get_denied(h, words)
  local allowed, backlog
  if tat then
    allowed, backlog = decide(rule, now_us(), tat, frac)
    if not allowed then
      return wait_of(rule, backlog)
    end
  end
  local place = find(t, bucket)
  if place < 0 then
    return nil
  end
  tat, frac = read_at(t, place)
  allowed, backlog = decide(rule, now_us(), tat, frac)
  if allowed or not still(t, place, bucket) then
    return nil
  end
  set_denied(h, words, tat, frac)
  return wait_of(rule, backlog)
end

function _M.live()
  return buckets.live(t, now_us()), buckets.capacity(t)
end

function _M.repair()
  if lock.held then
    release(lock)
  end
end

return _M
