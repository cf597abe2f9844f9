-- dead_retry: put a dead order back at the front of the queue, with its failures and crashes forgotten.
--
-- KEYS 1 dead      zset  dead order ids by time of death, ms
--      2 letters   hash  order id -> why it died, JSON
--      3 ready     list  newest left; its front is its right end
--      4 wake      list  at most one token
--      5 attempts  hash  order id -> failures
--      6 crashes   hash  order id -> leases that ran out
-- ARGV 1 order id
-- Answers 1, 0: there is no such dead letter, or -1: it is being cancelled.

local dead, letters, ready, wake, attempts, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]

local text = redis.call('HGET', letters, id)
if not text then
  return 0
end
local letter = cjson.decode(text)
if letter.state ~= 'dead' then
  return -1
end
redis.call('ZCARD', dead) -- these four only to fail before anything is written, should a key be of another type
redis.call('LLEN', ready)
redis.call('HLEN', attempts)
redis.call('HLEN', crashes)
local token = redis.call('LLEN', wake)

redis.call('ZREM', dead, id)
redis.call('HDEL', letters, id)
redis.call('HDEL', attempts, id)
redis.call('HDEL', crashes, id)
redis.call('RPUSH', ready, letter.message)
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return 1
