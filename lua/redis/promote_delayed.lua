-- promote_delayed: move delayed messages whose time has come to the front of the queue, and wake a worker.
--
-- KEYS 1 delayed  zset  messages by due time, ms
--      2 ready    list  newest left; its front is its right end
--      3 wake     list  at most one token
--      4 guard    hash  rebuilding: the shard is held
-- ARGV 1 most messages to move, 1 to 1000
-- Answers the number of messages moved.

local delayed, ready, wake, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))
if #due == 0 then
  return 0
end
redis.call('LLEN', ready) -- fails before anything is written, should the key be of another type
local token = redis.call('LLEN', wake)

local front = {}
for i = #due, 1, -1 do
  front[#front + 1] = due[i]
end
redis.call('ZREM', delayed, unpack(due))
redis.call('RPUSH', ready, unpack(front))
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return #due
