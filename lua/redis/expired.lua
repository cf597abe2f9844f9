-- expired: find leases that have run out. Reads only; reclaim looks again before it acts.
--
-- KEYS 1 leases  zset  batch ids by deadline, ms
-- ARGV 1 most batch ids to answer
-- Answers batch ids, the longest expired first.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))
