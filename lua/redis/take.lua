-- take: acknowledge the previous batch, and lease the next messages under a new batch id.
--
-- New orders come through the list or through the stream; what comes back waits in the list, since a stream has no front. A batch may hold both.
--
-- Replay-safe: while the new batch is leased, the same call answers the same messages and counts its lease from now. Due
-- delayed messages go first. A message that has crashed its workers too often travels in a batch of one. When messages stay
-- behind, the next worker is woken, so that one push wakes worker after worker for as long as there is work.
--
-- KEYS 1 ready     list  newest left
--      2 delayed   zset  messages by due time, ms
--      3 leases    zset  batch ids by deadline, ms
--      4 wake      list  at most one token
--      5 batch     list  the new batch, oldest left
--      6 previous  list  the batch to acknowledge (the new batch again when there is none)
--      7 attempts  hash  order id -> failures
--      8 crashes   hash  order id -> leases that ran out
--      9 guard     hash  rebuilding: the shard is held
--     10 orders    stream
-- ARGV 1 most messages to take, 1 to 1000
--      2 how long the lease lasts, ms
--      3 id of the new batch
--      4 id of the batch to acknowledge; empty: none
--      5 crashes from which on a message travels alone
--      6 "list": new orders go to the list, and what the stream still holds is older; or "stream"
-- Answers the messages, oldest first, and last "ok", or "lost": the batch to acknowledge was not leased any more.

-- include entries
-- include deliver

local ready, delayed, leases, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local batch, previous, attempts, crashes, guard, orders = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local max, lease_ms, id, previous_id, max_crashes = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

if redis.call('ZSCORE', leases, id) then
  local again = held(batch, orders, pending(orders, id))
  redis.call('ZREM', leases, id) -- see extend_lease.lua
  redis.call('ZADD', leases, now + lease_ms, id)
  again[#again + 1] = 'ok'
  return again
end
if redis.call('EXISTS', batch) == 1 then
  return redis.error_reply('ERR the new batch exists without a lease')
end

local function order_id(message)
  return string.match(message, '^(%d+) ') or ''
end

-- attempts and crashes are empty as long as nothing has ever gone wrong; then an acknowledgement need not look at its messages.
local failed, crashed = redis.call('HLEN', attempts), redis.call('HLEN', crashes)
local token = redis.call('LLEN', wake)
local acks = previous_id ~= '' and redis.call('ZSCORE', leases, previous_id)
local entries, done = acks and pending(orders, previous_id), {}
if acks and failed + crashed > 0 then
  for i, message in ipairs(held(previous, orders, entries)) do
    done[i] = order_id(message)
  end
end

local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, max)
local waiting, stream = redis.call('LLEN', ready) + #due, redis.call('XLEN', orders)
local n = math.min(max, waiting)
local company = n -- how many of them may share a batch with others

if n > 0 and crashed > 0 then
  local ids = {}
  for i = 1, #due do
    ids[i] = order_id(due[i])
  end
  if n > #due then
    local tail = redis.call('LRANGE', ready, #due - n, -1)
    for i = #tail, 1, -1 do
      ids[#ids + 1] = order_id(tail[i])
    end
  end
  local counts = redis.call('HMGET', crashes, unpack(ids))
  for i = 1, n do
    if (tonumber(counts[i] or '') or 0) >= max_crashes then
      n, company = math.max(1, i - 1), i - 1
      break
    end
  end
end

-- Nothing is decided below. The first write is never one that Redis refuses when its memory is full; after it, none is.
if acks then
  redis.call('ZREM', leases, previous_id)
  drop(previous, orders, previous_id, entries)
  if #done > 0 then
    redis.call('HDEL', attempts, unpack(done))
    redis.call('HDEL', crashes, unpack(done))
  end
end
if #due > 0 then
  redis.call('ZREM', delayed, unpack(due))
  local front = {}
  for i = #due, 1, -1 do
    front[#front + 1] = due[i]
  end
  redis.call('RPUSH', ready, unpack(front))
end
local taken, new, more = {}, {}, stream > 0
if more and ARGV[6] == 'list' then
  new, more = deliver(batch, orders, id, max)
  if #new > 0 then
    n = math.min(company, max - #new)
  end
elseif more and n == company and n < max then
  new, more = deliver(batch, orders, id, max - n)
end
if n > 0 then
  taken = redis.call('RPOP', ready, n)
  redis.call('RPUSH', batch, unpack(taken))
end
for i = 1, #new do
  taken[#taken + 1] = new[i]
end
if #taken > 0 then
  redis.call('ZADD', leases, now + lease_ms, id)
end
if (waiting > n or more) and token == 0 then
  redis.call('LPUSH', wake, '1')
end
taken[#taken + 1] = (previous_id ~= '' and not acks) and 'lost' or 'ok'
return taken
