-- take: acknowledges the previous batch, and leases the next messages as a new batch.
--
-- New orders arrive in the list or in the stream. Requeued messages wait in the list, because a stream has no front.
-- A batch can hold both.
--
-- The script is replay-safe: while the new batch is leased, the same call returns the same messages and restarts the
-- lease. A batch id is leased once: a repetition that arrives after the batch has ended, however late, returns no
-- messages, because calls of the first lease may still arrive and would acknowledge the second (ADR 52).
--
-- Delayed messages that are due come first. A message that has crashed its workers too often is leased alone. If
-- messages remain, the next worker is woken, so one push wakes as many workers as there is work for.
--
-- KEYS 1 ready     list    newest left
--      2 delayed   zset    messages by due time, ms
--      3 leases    zset    batch ids by deadline, ms
--      4 wake      list    at most one token
--      5 batch     list    the new batch, newest left
--      6 previous  list    the batch to acknowledge; the new batch if there is none
--      7 attempts  hash    order id -> failures
--      8 crashes   hash    order id -> number of expired leases
--      9 guard     hash    rebuilding: a rebuild holds the shard
--     10 orders    stream
--     11 consumers hash    number of a consumer -> id of its last batch (register_consumer)
-- ARGV 1 largest number of messages to take: 1 to 1000
--      2 duration of the lease, ms
--      3 id of the new batch: <consumer>-<n>, where n is larger than in the consumer's earlier batches
--      4 id of the batch to acknowledge, or ''
--      5 number of crashes from which on a message is leased alone
--      6 "list" if new orders arrive in the list, and entries of the stream are older; or "stream"
-- Returns the messages, oldest first, then "ok"; or "lost" if the batch to acknowledge was not leased. Or
--      "unregistered" alone if the consumer is not registered, and nothing changed.

-- include clock
-- include stream
-- include lease_entries
-- include requeue

local ready, delayed, leases, wake, batch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local previous, attempts, crashes, guard, orders = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local consumers = KEYS[11]
local max, lease_ms, max_crashes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
local id, previous_id = ARGV[3], ARGV[4]

-- include check_shard
local now = now_ms()

local consumer, number, batch_n = string.match(id, '^(.+%-(%d+))%-(%d+)$')
local last = number and redis.call('HGET', consumers, number) or ''
local owner, last_n = string.match(last, '^(.+)%-(%d+)$')
if not consumer or owner ~= consumer then
  return { 'unregistered' }
end
if tonumber(batch_n) <= tonumber(last_n) then
  if redis.call('ZSCORE', leases, id) then
    local again = batch_messages(batch, orders, leased_entries(orders, id))
    redis.call('ZREM', leases, id) -- first, see extend_lease
    redis.call('ZADD', leases, now + lease_ms, id)
    again[#again + 1] = 'ok'
    return again
  end
  return { previous_id ~= '' and 'lost' or 'ok' } -- the batch has ended
end
if redis.call('EXISTS', batch) == 1 then
  return redis.error_reply('ERR the new batch exists without a lease')
end

local function order_id(message)
  return string.match(message, '^(%d+) ') or ''
end

-- While attempts and crashes are empty, an acknowledgement does not read its messages.
local failed, crashed = redis.call('HLEN', attempts), redis.call('HLEN', crashes)
local token = redis.call('LLEN', wake)
local acks = redis.call('ZSCORE', leases, previous_id)
local entries, done = acks and leased_entries(orders, previous_id), {}
if acks and failed + crashed > 0 then
  for i, message in ipairs(batch_messages(previous, orders, entries)) do
    done[i] = order_id(message)
  end
end

local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, max)
local waiting, stream = redis.call('LLEN', ready) + #due, redis.call('XLEN', orders)
local n = math.min(max, waiting)
local shared = n -- how many of them can share a batch with entries of the stream

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
      n, shared = math.max(1, i - 1), i - 1
      break
    end
  end
end

-- All decisions are made. The first write of every branch is one that Redis with full memory accepts; then it accepts
-- the others too.
if acks then
  redis.call('ZREM', leases, previous_id)
  end_batch(previous, orders, previous_id, entries)
  if #done > 0 then
    redis.call('HDEL', attempts, unpack(done))
    redis.call('HDEL', crashes, unpack(done))
  end
end
if #due > 0 then
  redis.call('ZREM', delayed, unpack(due))
  push_front(ready, due)
end
local taken, new, more = {}, {}, stream > 0
if more and ARGV[6] == 'list' then
  new, more = lease_entries(batch, orders, id, max)
  if #new > 0 then
    n = math.min(shared, max - #new)
  end
elseif more and n == shared and n < max then
  new, more = lease_entries(batch, orders, id, max - n)
end
if n > 0 and n == waiting then -- RENAME does not write the messages to the append-only file again
  redis.call('RENAME', ready, batch)
  taken = listed_messages(batch)
elseif n > 0 then
  taken = redis.call('RPOP', ready, n)
  redis.call('LPUSH', batch, unpack(taken))
end
for i = 1, #new do
  taken[#taken + 1] = new[i]
end
if #taken > 0 then
  redis.call('ZADD', leases, now + lease_ms, id)
  redis.call('HSET', consumers, number, id)
end
if (waiting > n or more) and token == 0 then
  redis.call('LPUSH', wake, '1')
end
taken[#taken + 1] = (previous_id ~= '' and not acks) and 'lost' or 'ok'
return taken
