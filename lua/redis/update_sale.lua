-- update_sale: bring a sale that Redis holds up to a newer definition from SQL.
--
-- Units left move by the difference of the stock in all, so a restock while the sale runs neither loses nor makes a unit.
-- Replay-safe: a version that is not newer changes nothing. What has changed is signalled.
--
-- KEYS 1 sale      hash
--      2 stock     string  units left
-- ARGV 1 version   2 switch   3 opens_at (ms)   4 closes_at (ms, 0: never)   5 per_buyer   6 stock in all   7 title
--      8 price amount   9 currency
-- Answers "applied", "current" or "not_loaded".

local sale, stock = KEYS[1], KEYS[2]
local have = redis.call('HMGET', sale, 'version', 'stock', 'switch')
if not have[1] or redis.call('EXISTS', stock) == 0 then
  return 'not_loaded'
end
if tonumber(ARGV[1]) <= tonumber(have[1]) then
  return 'current'
end
local more = tonumber(ARGV[6]) - tonumber(have[2])
redis.call('HSET', sale, 'version', ARGV[1], 'switch', ARGV[2], 'opens_at', ARGV[3], 'closes_at', ARGV[4], 'per_buyer', ARGV[5],
  'stock', ARGV[6], 'title', ARGV[7], 'amount', ARGV[8], 'currency', ARGV[9])
local left = redis.call('INCRBY', stock, string.format('%d', more))
local what = more ~= 0 and 'restocked' or 'changed'
if ARGV[2] ~= have[3] then
  what = ({ paused = 'paused', closed = 'closed' })[ARGV[2]] or 'opened'
end
local prefix, id = string.match(sale, '^(.-)sale:(.*)$')
redis.pcall('PUBLISH', prefix .. 'sale_notifications',
  string.format('{"v":1,"type":"%s","sale":"%s","left":%.0f,"version":%s}', what, id, left, ARGV[1]))
return 'applied'
