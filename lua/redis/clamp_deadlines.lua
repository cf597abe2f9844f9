-- clamp_deadlines: shortens leases and delays that end too far ahead because the clock was set back. Without it, the
-- batch of a crashed worker would stay leased for as long as the clock was wrong.
--
-- KEYS 1 leases   zset  batch ids by deadline, ms
--      2 delayed  zset  messages by due time, ms
--      3 guard    hash  rebuilding: a rebuild holds the shard
-- ARGV 1 how far ahead a deadline can lie, ms
--      2 how far ahead a due time can lie, ms
--      3 duration of a lease, ms
--      4 longest delay, ms
--      5 largest number of leases, and of delays, to change: 1 to 1000
-- Returns the number of leases and delays changed.

-- include clock

local leases, delayed, guard = KEYS[1], KEYS[2], KEYS[3]
local lease_ahead, delay_ahead = tonumber(ARGV[1]), tonumber(ARGV[2])
local lease_ms, delay_ms, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- include check_shard
local now = now_ms()
local held = redis.call('ZRANGEBYSCORE', leases, now + lease_ahead, '+inf', 'LIMIT', 0, limit)
local waiting = redis.call('ZRANGEBYSCORE', delayed, now + delay_ahead, '+inf', 'LIMIT', 0, limit)

for _, id in ipairs(held) do
  redis.call('ZREM', leases, id) -- first, see extend_lease
  redis.call('ZADD', leases, now + lease_ms, id)
end
for _, message in ipairs(waiting) do
  redis.call('ZREM', delayed, message)
  redis.call('ZADD', delayed, now + delay_ms, message)
end
return #held + #waiting
