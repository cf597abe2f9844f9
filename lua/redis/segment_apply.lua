-- segment_apply: applies a newer allocation from SQL to a segment, and ends its outgoing transfer.
--
-- Units left change by the difference of the allocations, and the units of the outgoing transfer return. If the
-- transfer is committed, the new allocation is lower by as many; otherwise it never will be, since the version has
-- changed. Replay-safe: a version that is not newer changes nothing.
--
-- KEYS 1 sale   hash    version, stock (units of the allocation), segment, allocation, out
--      2 stock  string  units left
--      3 guard  hash    deployment
-- ARGV 1 segment "<index>/<spread>"   2 id of the deployment in SQL (include/check_owner)
--      3 version of the allocation   4 units of the allocation
-- Returns "applied" or "current". Or an error, and nothing changed: it begins with SEGMENT if this shard does not hold
--      that segment, a rebuild holds it, or the units left would be negative, and with FOREIGN if the data belongs to
--      another deployment.

-- include notify

local sale, stock, guard = KEYS[1], KEYS[2], KEYS[3]
local deployment = ARGV[2]

-- include check_owner
local def = redis.call('HMGET', sale, 'version', 'segment', 'allocation', 'stock', 'out')
local left = tonumber(redis.call('GET', stock) or '')
if not def[1] or not left or def[2] ~= ARGV[1] then
  return redis.error_reply('SEGMENT this shard does not hold segment ' .. ARGV[1] .. ' of the sale')
end
if tonumber(ARGV[3]) <= tonumber(def[3]) then
  return 'current'
end
local more = tonumber(ARGV[4]) - tonumber(def[4]) + tonumber(string.match(def[5] or '', '^%d+') or 0)
if left + more < 0 then
  return redis.error_reply('SEGMENT the allocation is smaller than the orders of segment ' .. ARGV[1])
end

redis.call('HSET', sale, 'allocation', ARGV[3], 'stock', ARGV[4])
redis.call('HDEL', sale, 'out')
redis.call('INCRBY', stock, string.format('%d', more))
if left == 0 and more > 0 then
  notify(sale, 'restocked', more, def[1])
end
return 'applied'
