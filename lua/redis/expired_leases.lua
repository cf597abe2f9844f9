-- expired_leases: finds expired leases. It only reads; reclaim checks each lease again.
--
-- KEYS 1 leases   zset  batch ids by deadline, ms
--      2 delayed  zset  messages by due time, ms
-- ARGV 1 largest number of batch ids to return
--      2 how far ahead a deadline can lie, ms
--      3 how far ahead a due time can lie, ms
-- Returns batch ids, the earliest deadline first, then "ok"; or "ahead" if a deadline or due time lies further ahead
--      than that, because the clock was set back.

-- include clock

local leases, delayed = KEYS[1], KEYS[2]
local limit, lease_ms, delay_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local now = now_ms()
local answer = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, limit)
local ahead = redis.call('ZCOUNT', leases, now + lease_ms, '+inf')
  + redis.call('ZCOUNT', delayed, now + delay_ms, '+inf')
answer[#answer + 1] = ahead > 0 and 'ahead' or 'ok'
return answer
