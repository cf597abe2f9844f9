-- release: requeues a batch that was not worked on. It counts no failure and no crash.
--
-- KEYS 1 leases  zset    batch ids by deadline, ms
--      2 batch   list    the batch, newest left
--      3 ready   list    newest left; its front is its right end
--      4 wake    list    at most one token
--      5 guard   hash    rebuilding: a rebuild holds the shard
--      6 orders  stream  entries of the batch are pending for the consumer with its id
-- ARGV 1 batch id
-- Returns 1; or 0 if the batch is not leased, and nothing changed.

-- include stream
-- include requeue

local leases, batch, ready, wake, guard, orders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]

-- include check_shard
if not redis.call('ZSCORE', leases, id) then
  return 0
end
local entries = leased_entries(orders, id)
local messages = batch_messages(batch, orders, entries)
redis.call('LLEN', ready) -- fails before anything is written if the key has the wrong type
local token = redis.call('LLEN', wake)

redis.call('ZREM', leases, id)
end_batch(batch, orders, id, entries)
requeue(ready, wake, token, messages)
return 1
