-- rebuild_enqueue: adds messages to the queue that the rebuild assembles. A call that is repeated after a lost reply
-- adds nothing.
--
-- KEYS 1 guard  hash  fence, deployment
--      2 ready  list  queue of the rebuild, newest left
-- ARGV 1 "<fence> <deployment>"   2 number of messages added before
--      then messages, oldest first, at most 1000
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

local guard, ready = KEYS[1], KEYS[2]

-- include check_fence
-- include check_swapped
local length, before = redis.call('LLEN', ready), tonumber(ARGV[2])
if length < before then
  return redis.error_reply('ERR messages are missing')
elseif length > before then
  return 'ok'
end

redis.call('LPUSH', ready, unpack(ARGV, 3))
return 'ok'
