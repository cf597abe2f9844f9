-- rebuild_enqueue: add messages to the queue that is put together.
--
-- Replay-safe: a client may send it again when the reply is lost, and the messages are there then.
--
-- KEYS 1 guard  hash  fence
--      2 ready  list  of the rebuild, newest left
-- ARGV 1 fence   2 how many messages were added before
--      then messages, oldest first, at most 1000
-- Answers "ok", or "fenced", as rebuild_hold.

if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then
  return 'fenced'
end
local there, before = redis.call('LLEN', KEYS[2]), tonumber(ARGV[2])
if there < before then
  return redis.error_reply('ERR messages are missing')
elseif there > before then
  return 'ok'
end
redis.call('LPUSH', KEYS[2], unpack(ARGV, 3))
return 'ok'
