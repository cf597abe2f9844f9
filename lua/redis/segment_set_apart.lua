-- segment_set_apart: takes units of a segment off sale and records them as its outgoing transfer to another segment.
--
-- The record stays until segment_apply applies a newer allocation. A segment has one outgoing transfer at most, so the
-- script is replay-safe: run again, it returns the transfer that exists.
--
-- KEYS 1 sale   hash    version, segment, allocation; out: "<units> <to>" of the outgoing transfer
--      2 stock  string  units left
--      3 guard  hash    deployment
-- ARGV 1 segment "<index>/<spread>"   2 id of the deployment in SQL (include/check_owner)
--      3 largest number of units   4 index of the other segment
-- Returns three numbers: the version of the allocation, the units, the index of the other segment; nothing if no unit
--      is left. Or an error, and nothing changed: it begins with SEGMENT if this shard does not hold that segment or a
--      rebuild holds it, and with FOREIGN if the data belongs to another deployment.

local sale, stock, guard = KEYS[1], KEYS[2], KEYS[3]
local deployment = ARGV[2]

-- include check_owner
local def = redis.call('HMGET', sale, 'version', 'segment', 'allocation', 'out')
local left = tonumber(redis.call('GET', stock) or '')
if not def[1] or not left or def[2] ~= ARGV[1] then
  return redis.error_reply('SEGMENT this shard does not hold segment ' .. ARGV[1] .. ' of the sale')
end
local units, to
if def[4] then
  units, to = string.match(def[4], '^(%d+) (%d+)$')
else
  units, to = math.min(tonumber(ARGV[3]), left), ARGV[4]
  if units < 1 then
    return {}
  end
end

if not def[4] then
  redis.call('HSET', sale, 'out', string.format('%d %d', units, to))
  redis.call('DECRBY', stock, string.format('%d', units))
end
return { tonumber(def[3]), tonumber(units), tonumber(to) }
