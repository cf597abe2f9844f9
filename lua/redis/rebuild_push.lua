-- rebuild_push: add messages to the queue that is put together.
--
-- KEYS 1 epoch  hash  fence
--      2 ready  list  of the rebuild, newest left
-- ARGV 1 fence
--      then messages, oldest first, at most 1000
-- Answers "ok", or "fenced", as rebuild_hold.

if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then
  return 'fenced'
end
redis.call('LPUSH', KEYS[2], unpack(ARGV, 2))
return 'ok'
