-- promote_delayed: moves delayed messages that are due to the front of the queue, and wakes a worker.
--
-- KEYS 1 delayed  zset  messages by due time, ms
--      2 ready    list  newest left; its front is its right end
--      3 wake     list  at most one token
--      4 guard    hash  rebuilding: a rebuild holds the shard
-- ARGV 1 largest number of messages to move: 1 to 1000
-- Returns the number of messages moved.

-- include clock
-- include requeue

local delayed, ready, wake, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- include check_shard
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now_ms(), 'LIMIT', 0, tonumber(ARGV[1]))
if #due == 0 then
  return 0
end
redis.call('LLEN', ready) -- fails before anything is written if the key has the wrong type
local token = redis.call('LLEN', wake)

redis.call('ZREM', delayed, unpack(due))
requeue(ready, wake, token, due)
return #due
