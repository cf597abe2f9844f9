-- alloc_order_ids: leases a block of order numbers. A missing counter was lost together with the blocks leased from
-- it; the new counter starts at a number far from the old ones.
--
-- KEYS 1 counter  string  last number leased
-- ARGV 1 size of the block
--      2 start of a new counter
-- Returns the last number of the block. Each run leases another block.

local counter = KEYS[1]

if redis.call('EXISTS', counter) == 0 then
  redis.call('SET', counter, ARGV[2])
end
return redis.call('INCRBY', counter, ARGV[1])
