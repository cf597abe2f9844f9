-- expired_leases: find leases that have run out. Reads only; reclaim looks again before it acts.
--
-- KEYS 1 leases   zset  batch ids by deadline, ms
--      2 delayed  zset  messages by due time, ms
-- ARGV 1 most batch ids to answer
--      2 how far ahead a deadline can lie, ms
--      3 how far ahead a due time can lie, ms
-- Answers batch ids, the longest expired first, and last "ok", or "ahead": some time lies further ahead than that, because the clock was set back.

local leases, delayed = KEYS[1], KEYS[2]
local limit, lease_ms, wait_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local answer = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, limit)
local ahead = redis.call('ZCOUNT', leases, now + lease_ms, '+inf') + redis.call('ZCOUNT', delayed, now + wait_ms, '+inf')
answer[#answer + 1] = ahead > 0 and 'ahead' or 'ok'
return answer
