-- The buckets of the policy's rules in a shared dict. A bucket is one entry: the key is the rule's prefix and the
-- client, the value is the instant at which the bucket is empty (limit/gcra.lua), the flags are the part of a
-- microsecond. An entry is read and written by one call, which is atomic.

local clock = require "sluice.clock"
local gcra = require "sluice.limit.gcra"
local zone = require "sluice.limit.zone"

local decide, empty_in, wait_of = gcra.decide, gcra.empty_in, gcra.wait
local now_us = clock.now

-- Bytes of one bucket: the entry of the dict, with a key of some 20 bytes.
local BUCKET = 128

local dict, buckets

local _M = {}

-- init(shared_dict): call it in init_worker_by_lua
function _M.init(shared_dict)
  dict, buckets = shared_dict, zone.new(shared_dict)
end

-- prepare(rule): call it once for each rule
function _M.prepare() end

-- bucket(rule, client) -> the bucket of one client under a rule, for the other functions. client: a string, see
-- rules.lua
function _M.bucket(rule, client)
  return rule.prefix .. client
end

-- enter() -> now (us); or nil, err. leave() ends the turn. Between them no other worker writes, and the caller must not
-- yield.
function _M.enter()
  return buckets:enter()
end

function _M.leave()
  buckets:leave()
end

-- read(bucket) -> tat, frac (see gcra.lua); or nil: the bucket is empty
function _M.read(bucket)
  local tat, frac = dict:get(bucket)
  return tat, frac or 0
end

-- is_current(bucket) -> whether the latest read of this bucket, without the lock, read this bucket and no other
function _M.is_current()
  return true
end

-- reserve(bucket, now, is_new) -> true: a write of this bucket in this turn does not fail; or nil, err. A bucket that
-- does not exist is made, and is empty. is_new: read has not found it
function _M.reserve(bucket, now, is_new)
  if not is_new then
    return true
  end
  return buckets:put(now, bucket, now, 0, 0)
end

-- write(bucket, rule, now, backlog, tat, frac)
function _M.write(bucket, rule, now, backlog, tat, frac)
  return buckets:put(now, bucket, tat, empty_in(rule, backlog), frac)
end

-- refuses(rule, client) -> microseconds for which the bucket refuses this client, or nil. Reads one entry without the
-- lock.
function _M.refuses(rule, client)
  local tat, frac = dict:get(rule.prefix .. client)
  if not tat then
    return nil
  end
  local allowed, backlog = decide(rule, now_us(), tat, frac or 0)
  if not allowed then
    return wait_of(rule, backlog)
  end
end

-- live() -> how many buckets the dict holds, and how many there is room for. Both are estimates: the dict does not
-- count its entries.
function _M.live()
  local capacity, free = dict:capacity(), dict:free_space()
  return (capacity - free) / BUCKET, capacity / BUCKET
end

-- repair(): see lock.lua
function _M.repair()
  buckets:repair()
end

return _M
