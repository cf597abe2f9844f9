-- rebuild_swap_queue: let the queue that was put together take the place of the shard's, at once.
--
-- Replay-safe by the field swapped: a repetition would find nothing to put in place, and empty the queue.
--
-- KEYS 1 guard    hash  fence
--      2 new      list  the queue that was put together
--      3 ready    list
--      4 delayed  zset
--      5 leases   zset
--      6 wake     list  at most one token
--      7 attempts  hash  order id -> failures
--      8 crashes   hash  order id -> leases that ran out
--      9 orders   stream  emptied: what it held is in the new queue
--     10.. the batches of all leases
-- ARGV 1 fence
--      2.. ids of orders that had failures or crashes, and are no longer in the queue
-- Answers "ok", or "fenced", as rebuild_hold.

local guard, new, ready, delayed, leases, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local attempts, crashes, orders = KEYS[7], KEYS[8], KEYS[9]

if redis.call('HGET', guard, 'fence') ~= ARGV[1] then
  return 'fenced'
end
if redis.call('HGET', guard, 'swapped') == ARGV[1] then
  return 'ok'
end
redis.call('HSET', guard, 'swapped', ARGV[1])
for i = 2, #ARGV do
  redis.call('HDEL', attempts, ARGV[i])
  redis.call('HDEL', crashes, ARGV[i])
end
redis.call('UNLINK', delayed, leases, orders, unpack(KEYS, 10))
if redis.call('EXISTS', new) == 1 then
  redis.call('RENAME', new, ready)
  if redis.call('LLEN', wake) == 0 then
    redis.call('LPUSH', wake, '1')
  end
else
  redis.call('UNLINK', ready)
end
return 'ok'
