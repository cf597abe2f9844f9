-- load_sale: make a sale known to Redis, as the last step after its buyers were put in place. From here on it can be bought.
--
-- Replay-safe: a sale that is there already is left alone, whatever it holds.
--
-- KEYS 1 sale      hash
--      2 stock     string  units left
--      3 sales     set     ids of the sales in this shard
--      4 buyers    hash    buyer -> order ids by place
--      5 returns   hash    order id -> number of its return, until SQL knows it
--      6 guard     hash    run_id: this Redis was verified; rebuilding: the shard is held
-- ARGV 1 version   2 switch   3 opens_at (ms)   4 closes_at (ms, 0: never)   5 per_buyer   6 stock in all   7 title
--      8 price amount   9 currency   10 units left   11 acceptances so far   12 sale id
--      13 how many buyers were put in place   14 "1": only into a Redis that was verified
--      15.. ids of cancelled orders whose unit is counted in the units left, and whose rows do not know that yet
-- Answers "loaded" or "present"; "unverified" when what Redis holds must be verified first, and nothing is changed;
-- "lost" when Redis was emptied while the buyers were put in place, and nothing is changed.

local sale, stock, sales, buyers, returns, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local mark = redis.call('HMGET', guard, 'rebuilding', 'run_id')
if mark[1] or (ARGV[14] == '1' and not mark[2]) then
  return 'unverified'
end
if redis.call('EXISTS', sale) == 1 and redis.call('EXISTS', stock) == 1 then
  return 'present'
end
if redis.call('HLEN', buyers) < tonumber(ARGV[13]) then
  return 'lost'
end
-- Returns are numbered on from here. The clock in microseconds is above every number that a Redis lost before this one has given: rows keep
-- those, and the audit compares them.
local time = redis.call('TIME')
local returned = string.format('%d', tonumber(time[1]) * 1000000 + tonumber(time[2]))
redis.call('DEL', returns)
redis.call('HSET', sale, 'version', ARGV[1], 'switch', ARGV[2], 'opens_at', ARGV[3], 'closes_at', ARGV[4], 'per_buyer', ARGV[5],
  'stock', ARGV[6], 'title', ARGV[7], 'amount', ARGV[8], 'currency', ARGV[9], 'accepted', ARGV[11], 'returned', returned)
redis.call('SET', stock, ARGV[10])
redis.call('SADD', sales, ARGV[12])
for i = 15, #ARGV do
  redis.call('HSET', returns, ARGV[i], returned)
end
redis.pcall('PUBLISH', string.match(sale, '^(.-)sale:') .. 'sale_notifications',
  string.format('{"v":1,"type":"opened","sale":"%s","left":%s,"version":%s}', ARGV[12], ARGV[10], ARGV[1]))
return 'loaded'
