-- dead_begin_cancel: mark a dead order as being cancelled; from then on it cannot be retried. Done twice, it answers twice.
--
-- KEYS 1 letters  hash  order id -> why it died, JSON
--      2 guard    hash  rebuilding: the shard is held; generation
-- ARGV 1 order id
-- Answers two: the letter, and the generation of this Redis, 0 when it was never verified. An empty array: there is no such letter.

local letters, guard = KEYS[1], KEYS[2]
local id = ARGV[1]

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local text = redis.call('HGET', letters, id)
if not text then
  return {}
end
local letter = cjson.decode(text)
if letter.state == 'dead' then
  letter.state = 'cancelling'
  text = cjson.encode(letter)
  redis.call('HSET', letters, id, text)
end
return { text, redis.call('HGET', guard, 'generation') or '0' }
