-- rebuild_swap: let the queue that was put together take the place of the lane's, at once.
--
-- Replay-safe by the field swapped: a repetition would find nothing to put in place, and empty the queue.
--
-- KEYS 1 epoch    hash  fence
--      2 new      list  the queue that was put together
--      3 ready    list
--      4 delayed  zset
--      5 leases   zset
--      6 wake     list  at most one token
--      7.. the batches of all leases
-- ARGV 1 fence
-- Answers "ok", or "fenced", as rebuild_hold.

local epoch, new, ready, delayed, leases, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

if redis.call('HGET', epoch, 'fence') ~= ARGV[1] then
  return 'fenced'
end
if redis.call('HGET', epoch, 'swapped') == ARGV[1] then
  return 'ok'
end
redis.call('HSET', epoch, 'swapped', ARGV[1])
redis.call('UNLINK', delayed, leases, unpack(KEYS, 7))
if redis.call('EXISTS', new) == 1 then
  redis.call('RENAME', new, ready)
  if redis.call('LLEN', wake) == 0 then
    redis.call('LPUSH', wake, '1')
  end
else
  redis.call('UNLINK', ready)
end
return 'ok'
