-- enqueue: put messages at the end of the queue and wake a worker.
--
-- KEYS 1 ready  list  newest left
--      2 wake   list  at most one token
--      3 guard  hash  rebuilding: the shard is held
--      4 orders stream; where there is this key, the messages go into the stream and not into the list
-- ARGV the messages, oldest first, at most 1000
-- Answers the number of messages.

local ready, wake, guard, orders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local token = redis.call('LLEN', wake)
if orders then
  for i = 1, #ARGV do
    redis.call('XADD', orders, '*', 'm', ARGV[i])
  end
else
  redis.call('LPUSH', ready, unpack(ARGV))
end
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return #ARGV
