-- dead_begin_cancel: marks a dead letter as being cancelled, so that its order cannot be retried.
--
-- KEYS 1 letters  hash  key -> dead letter, JSON
--      2 guard    hash  rebuilding: a rebuild holds the shard; generation of the verified data; deployment
-- ARGV 1 order id   2 id of the deployment in SQL (include/check_owner)
-- Returns the letter and the generation; or nothing if the order has no letter. Or an error that begins with
--      FOREIGN, and nothing changed.

local letters, guard = KEYS[1], KEYS[2]
local id, deployment = ARGV[1], ARGV[2]

-- include check_shard
-- include check_owner
local text = redis.call('HGET', letters, id)
if not text then
  return {}
end
local generation = redis.call('HGET', guard, 'generation') or '0'

local letter = cjson.decode(text)
if letter.state == 'dead' then
  letter.state = 'cancelling'
  text = cjson.encode(letter)
  redis.call('HSET', letters, id, text)
end
return { text, generation }
