-- update_sale: applies a newer definition from SQL to a sale that Redis holds.
--
-- Units left change by the difference of the stock, so a restock during the sale neither loses nor adds a unit.
-- Replay-safe: a version that is not newer changes nothing. The units of a segment change by segment_apply only.
--
-- KEYS 1 sale   hash
--      2 stock  string  units left
--      3 guard  hash    deployment
-- ARGV 1 version   2 switch   3 opens_at (ms)   4 closes_at (ms, 0: never)   5 per_buyer   6 stock   7 title
--      8 price amount   9 currency   10 id of the deployment of the sale (include/check_owner)
-- Returns "applied", "current" or "not_loaded". Or an error that begins with FOREIGN, and nothing changed.

-- include notify

local sale, stock, guard = KEYS[1], KEYS[2], KEYS[3]
local deployment = ARGV[10]

-- include check_owner
local have = redis.call('HMGET', sale, 'version', 'stock', 'switch', 'segment')
if not have[1] or redis.call('EXISTS', stock) == 0 then
  return 'not_loaded'
end
if tonumber(ARGV[1]) <= tonumber(have[1]) then
  return 'current'
end
local units = have[4] and have[2] or ARGV[6]
local more = tonumber(units) - tonumber(have[2])

redis.call('HSET', sale, 'version', ARGV[1], 'switch', ARGV[2], 'opens_at', ARGV[3], 'closes_at', ARGV[4],
  'per_buyer', ARGV[5], 'stock', units, 'title', ARGV[7], 'amount', ARGV[8], 'currency', ARGV[9])
local left = redis.call('INCRBY', stock, string.format('%d', more))
local kind = more ~= 0 and 'restocked' or 'changed'
if ARGV[2] ~= have[3] then
  kind = ({ paused = 'paused', closed = 'closed' })[ARGV[2]] or 'opened'
end
notify(sale, kind, left, ARGV[1])
return 'applied'
