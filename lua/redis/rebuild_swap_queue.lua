-- rebuild_swap_queue: replaces the queue of a shard by the one that the rebuild assembled, in one step.
--
-- The field swapped makes the script replay-safe: a repetition would find no new queue and delete the current one. It
-- also ends late repetitions of the scripts before this one (include/check_swapped).
--
-- KEYS 1 guard     hash    fence, deployment, swapped
--      2 new       list    queue of the rebuild
--      3 ready     list
--      4 delayed   zset
--      5 leases    zset
--      6 wake      list    at most one token
--      7 attempts  hash    order id -> failures
--      8 crashes   hash    order id -> number of expired leases
--      9 orders    stream  deleted: the new queue holds its messages
--      then the batches
-- ARGV 1 "<fence> <deployment>"
--      then ids of orders that had failures or crashes, and have left the queue
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

local guard, new, ready, delayed, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local wake, attempts, crashes, orders = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local fence = string.match(ARGV[1], '^%d+')

-- include check_fence
-- include check_swapped
local assembled, token = redis.call('EXISTS', new) == 1, redis.call('LLEN', wake)

redis.call('HSET', guard, 'swapped', fence)
for i = 2, #ARGV do
  redis.call('HDEL', attempts, ARGV[i])
  redis.call('HDEL', crashes, ARGV[i])
end
redis.call('UNLINK', delayed, leases, orders, unpack(KEYS, 10))
if assembled then
  redis.call('RENAME', new, ready)
  if token == 0 then
    redis.call('LPUSH', wake, '1')
  end
else
  redis.call('UNLINK', ready)
end
return 'ok'
