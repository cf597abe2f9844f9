-- enqueue: adds messages to the end of the queue and wakes a worker. A repetition adds them again; the store writes an
-- order once.
--
-- KEYS 1 ready   list    newest left
--      2 wake    list    at most one token
--      3 guard   hash    rebuilding: a rebuild holds the shard
--      4 orders  stream  optional; if given, it receives the messages instead of ready
-- ARGV the messages, oldest first, at most 1000
-- Returns the number of messages.

local ready, wake, guard, orders = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- include check_shard
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
