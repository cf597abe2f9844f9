-- rebuild_slots: put right what buyers hold.
--
-- KEYS 1 guard   hash  fence
--      2 buyers  hash  buyer -> order ids by place, comma-separated
-- ARGV 1 fence
--      then for each buyer two: buyer, order ids by place (empty: the buyer holds nothing, and stays: see return_unit.lua)
-- Answers "ok", or "fenced", as rebuild_hold.

local guard, buyers = KEYS[1], KEYS[2]

if redis.call('HGET', guard, 'fence') ~= ARGV[1] then
  return 'fenced'
end
for i = 2, #ARGV, 2 do
  redis.call('HSET', buyers, ARGV[i], ARGV[i + 1])
end
return 'ok'
