-- clamp_deadlines: the clock was set back. Leases and delays that would last longer than they ever should are counted from
-- now, or a crashed worker's batch
-- would wait for as long as the clock was wrong.
--
-- KEYS 1 leases   zset  batch ids by deadline, ms
--      2 delayed  zset  messages by due time, ms
--      3 guard    hash  rebuilding: the shard is held
-- ARGV 1 how far ahead a deadline can lie, ms
--      2 how far ahead a due time can lie, ms
--      3 how long a lease lasts, ms
--      4 the longest delay, ms
--      5 most entries of each to change, 1 to 1000
-- Answers the number of entries that were changed.

local leases, delayed, guard = KEYS[1], KEYS[2], KEYS[3]
local lease_ahead, delay_ahead, lease_ms, delay_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local limit = tonumber(ARGV[5])

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local held = redis.call('ZRANGEBYSCORE', leases, now + lease_ahead, '+inf', 'LIMIT', 0, limit)
local waiting = redis.call('ZRANGEBYSCORE', delayed, now + delay_ahead, '+inf', 'LIMIT', 0, limit)

for _, id in ipairs(held) do
  redis.call('ZREM', leases, id) -- see extend_lease.lua
  redis.call('ZADD', leases, now + lease_ms, id)
end
for _, message in ipairs(waiting) do
  redis.call('ZREM', delayed, message)
  redis.call('ZADD', delayed, now + delay_ms, message)
end
return #held + #waiting
