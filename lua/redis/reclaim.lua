-- reclaim: requeues one batch with an expired lease. It checks the lease again.
--
-- Every message counts one more crash of its worker and returns to the front of the queue. A message that has crashed
-- its workers too often is leased alone; if that lease expires too, the message becomes a dead letter.
--
-- KEYS 1 leases    zset    batch ids by deadline, ms
--      2 batch     list    the batch, newest left
--      3 ready     list    newest left; its front is its right end
--      4 wake      list    at most one token
--      5 attempts  hash    order id -> failures
--      6 crashes   hash    order id -> number of expired leases
--      7 dead      zset    keys of dead letters by the time they were added, ms
--      8 letters   hash    key -> dead letter, JSON
--      9 guard     hash    rebuilding: a rebuild holds the shard
--     10 orders    stream  entries of the batch are pending for the consumer with its id
--     11 index     zset    dead letters by sale (include/dead_letters)
-- ARGV 1 batch id
--      2 number of crashes from which on a message is leased alone
-- Returns the number of messages in the batch, dead ones included; or -1 if the batch is not leased or not expired.

-- include clock
-- include stream
-- include requeue
-- include dead_letters

local leases, batch, ready, wake, attempts, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local dead, letters, guard, orders, index = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id, max_crashes = ARGV[1], tonumber(ARGV[2])

-- include check_shard
local now = now_ms()
local deadline = redis.call('ZSCORE', leases, id)
if not deadline or tonumber(deadline) > now then
  return -1
end

local entries = leased_entries(orders, id)
local messages = batch_messages(batch, orders, entries)
redis.call('LLEN', ready) -- these fail before anything is written if a key has the wrong type
redis.call('HLEN', crashes)
check_letter_types(dead, letters, index)
local token = redis.call('LLEN', wake)
local ids = {}
for i = 1, #messages do
  ids[#ids + 1] = string.match(messages[i], '^(%d+) ')
end

local letter, key
if #messages == 1 and #ids == 1 then
  local count = (tonumber(redis.call('HGET', crashes, ids[1]) or '') or 0) + 1
  if count > max_crashes then
    key = letter_key(letters, {}, ids[1], messages[1])
    letter = encode_letter({
      message = messages[1], reason = string.format('crashed its worker %d times', count),
      history = redis.call('HGET', attempts, ids[1]) or '', crashes = string.format('%d', count),
    }, now)
  end
end

redis.call('ZREM', leases, id)
end_batch(batch, orders, id, entries)
if letter then
  put_letter(dead, letters, index, key, letter, now)
  redis.call('HDEL', attempts, ids[1])
  redis.call('HDEL', crashes, ids[1])
  return 1
end
for i = 1, #ids do
  redis.call('HINCRBY', crashes, ids[i], 1)
end
requeue(ready, wake, token, messages)
return #messages
