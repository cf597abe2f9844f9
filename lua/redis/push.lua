-- push: put messages at the end of the queue and wake a worker.
--
-- KEYS 1 ready  list  newest left
--      2 wake   list  at most one token
--      3 epoch  hash  rebuilding: the lane is held
-- ARGV the messages, oldest first, at most 1000
-- Answers the number of messages that are ready now.

local ready, wake, epoch = KEYS[1], KEYS[2], KEYS[3]

if redis.call('HEXISTS', epoch, 'rebuilding') == 1 then
  return redis.error_reply('HELD this lane is being rebuilt')
end
local token = redis.call('LLEN', wake)
local n = redis.call('LPUSH', ready, unpack(ARGV))
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return n
