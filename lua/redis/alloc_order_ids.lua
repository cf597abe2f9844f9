-- alloc_order_ids: lease a block of order numbers. A counter that is not there was lost, and with it what had been leased:
-- it begins anew far from there.
--
-- KEYS 1 counter  string
-- ARGV 1 how many numbers   2 where to begin should there be no counter
-- Answers the last number of the block. Run twice, it leases two blocks, one for nothing.

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], ARGV[2])
end
return redis.call('INCRBY', KEYS[1], ARGV[1])
