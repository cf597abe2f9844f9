-- push: put messages at the end of the queue and wake a worker.
--
-- KEYS 1 ready  list  newest left
--      2 wake   list  at most one token
-- ARGV the messages, oldest first, at most 1000
-- Answers the number of messages that are ready now.

local ready, wake = KEYS[1], KEYS[2]

local token = redis.call('LLEN', wake)
local n = redis.call('LPUSH', ready, unpack(ARGV))
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return n
