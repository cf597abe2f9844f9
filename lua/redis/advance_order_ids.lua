-- advance_order_ids: raises the counter of order numbers to a number. Replay-safe: a counter that is not lower does not
-- change.
--
-- KEYS 1 counter  string  last number leased
-- ARGV 1 number   2 number that stands for a missing counter
-- Returns 1.

local counter = KEYS[1]

if tonumber(redis.call('GET', counter) or ARGV[2]) < tonumber(ARGV[1]) then
  redis.call('SET', counter, ARGV[1])
end
return 1
