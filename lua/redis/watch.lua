-- watch: makes delayed messages ready that are due, and finds expired leases. reclaim checks each lease again.
--
-- A lease or a delay that ends further ahead than twice its longest duration began before the clock was set back. It
-- begins again: otherwise the batch of a crashed worker would stay leased for as long as the clock was wrong.
--
-- KEYS 1 leases   zset  batch ids by deadline, ms
--      2 delayed  zset  messages by due time, ms
--      3 ready    list  newest left; its front is its right end
--      4 wake     list  at most one token
--      5 guard    hash  rebuilding: a rebuild holds the shard
-- ARGV 1 largest number of batch ids to return
--      2 duration of a lease, ms
--      3 longest delay, ms
--      4 largest number of messages, leases and delays to change, of each: 1 to 1000
-- Returns batch ids, the earliest deadline first.

-- include clock
-- include requeue

local leases, delayed, ready, wake, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local lease_ms, delay_ms, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- include check_shard
local now = now_ms()
local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, limit)
local leased = redis.call('ZRANGEBYSCORE', leases, now + 2 * lease_ms, '+inf', 'LIMIT', 0, limit)
local waiting = redis.call('ZRANGEBYSCORE', delayed, now + 2 * delay_ms, '+inf', 'LIMIT', 0, limit)
redis.call('LLEN', ready) -- fails before anything is written if the key has the wrong type
local token = redis.call('LLEN', wake)

for _, id in ipairs(leased) do
  redis.call('ZREM', leases, id) -- first, see extend_lease
  redis.call('ZADD', leases, now + lease_ms, id)
end
for _, message in ipairs(waiting) do
  redis.call('ZREM', delayed, message)
  redis.call('ZADD', delayed, now + delay_ms, message)
end
if #due > 0 then
  redis.call('ZREM', delayed, unpack(due))
  requeue(ready, wake, token, due)
end
return expired
