-- rebuild_sale: write down what was counted of a sale. It cannot be bought yet: see rebuild_open.
--
-- KEYS 1 guard  hash    fence
--      2 sale   hash
--      3 stock  string  units left
--      4 sales  set     ids of the sales in this shard
--      5 returns  hash  order id -> number of its return, until SQL knows it
-- ARGV 1 fence   2 sale id   3 opens_at (ms)   4 closes_at (ms, 0: never)   5 per_buyer   6 stock in all   7 title   8 price amount
--      9 currency   10 units left   11 acceptances so far
--      12.. ids of cancelled orders whose unit is counted in the units left, and whose rows do not know that yet
-- Answers "ok", or "fenced", as rebuild_hold.

local guard, sale, stock, sales, returns = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

if redis.call('HGET', guard, 'fence') ~= ARGV[1] then
  return 'fenced'
end
local time = redis.call('TIME') -- see load_sale.lua
local returned = string.format('%d', tonumber(time[1]) * 1000000 + tonumber(time[2]))
redis.call('DEL', returns)
redis.call('HSET', sale, 'opens_at', ARGV[3], 'closes_at', ARGV[4], 'per_buyer', ARGV[5], 'stock', ARGV[6], 'title', ARGV[7],
  'amount', ARGV[8], 'currency', ARGV[9], 'accepted', ARGV[11], 'returned', returned)
redis.call('SET', stock, ARGV[10])
redis.call('SADD', sales, ARGV[2])
for i = 12, #ARGV do
  redis.call('HSET', returns, ARGV[i], returned)
end
return 'ok'
