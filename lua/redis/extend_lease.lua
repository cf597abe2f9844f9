-- extend_lease: count the lease of a batch from now. A lease that has run out can still be extended while nobody has reclaimed it.
--
-- KEYS 1 leases  zset  batch ids by deadline, ms
-- ARGV 1 batch id
--      2 how long the lease lasts, ms
-- Answers 1, or 0: the batch is not leased any more.

local leases = KEYS[1]
local id, lease_ms = ARGV[1], tonumber(ARGV[2])

if not redis.call('ZSCORE', leases, id) then
  return 0
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREM', leases, id) -- never refused, and after it ZADD is not either: a full memory must not cost a lease
redis.call('ZADD', leases, now + lease_ms, id)
return 1
