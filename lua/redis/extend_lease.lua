-- extend_lease: restarts the lease of a batch. An expired lease can be extended until its batch is reclaimed.
--
-- KEYS 1 leases  zset  batch ids by deadline, ms
-- ARGV 1 batch id
--      2 duration of the lease, ms
-- Returns 1; or 0 if the batch is not leased.

-- include clock

local leases = KEYS[1]
local id, lease_ms = ARGV[1], tonumber(ARGV[2])

if not redis.call('ZSCORE', leases, id) then
  return 0
end
local now = now_ms()
redis.call('ZREM', leases, id) -- Redis with full memory refuses ZADD as first write, and accepts it after ZREM
redis.call('ZADD', leases, now + lease_ms, id)
return 1
