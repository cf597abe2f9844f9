-- reclaim: take back one batch whose lease has run out, if it still has.
--
-- Every message of it has survived one more crash of its worker, and goes back to the front. A message that had crashed too
-- often and so travelled alone is the culprit: it dies.
--
-- KEYS 1 leases    zset  batch ids by deadline, ms
--      2 batch     list  the batch, oldest left
--      3 ready     list  newest left; its front is its right end
--      4 wake      list  at most one token
--      5 attempts  hash  order id -> failures
--      6 crashes   hash  order id -> leases that ran out
--      7 dead      zset  dead order ids by time of death, ms
--      8 letters   hash  order id -> why it died, JSON; raw:<sha1> when another order's letter bears the id
--      9 guard     hash  rebuilding: the shard is held
--     10 orders    stream  the batch's entries are pending for the consumer of its id
--     11 index   zset  a line for each letter, by sale: see include/dead_letters
-- ARGV 1 batch id
--      2 crashes from which on a message travels alone
-- Answers the number of messages taken back, dead ones included, or -1: the lease has not run out, or there is none.

-- include entries
-- include dead_letters

local leases, batch, ready, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local attempts, crashes, dead, letters, guard, orders, index = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id, max_crashes = ARGV[1], tonumber(ARGV[2])

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local deadline = redis.call('ZSCORE', leases, id)
if not deadline or tonumber(deadline) > now then
  return -1
end

local entries = pending(orders, id)
local messages = held(batch, orders, entries)
redis.call('LLEN', ready) -- these five only to fail before anything is written, should a key be of another type
redis.call('HLEN', crashes)
redis.call('ZCARD', dead)
redis.call('HLEN', letters)
redis.call('ZCARD', index)
local token = redis.call('LLEN', wake)
local front, ids = {}, {}
for i = #messages, 1, -1 do
  front[#front + 1] = messages[i]
  ids[#ids + 1] = string.match(messages[i], '^(%d+) ')
end

local function who(message)
  local head, buyer = string.match(message, '^(%d+ %S+ %d+) %d+ (.*)$')
  return head and head .. ' ' .. buyer
end
local letter, key
if #messages == 1 and #ids == 1 then
  local count = tonumber(redis.call('HGET', crashes, ids[1]) or '') or 0
  if count >= max_crashes then
    letter = cjson.encode({
      state = 'dead', message = messages[1], reason = string.format('crashed its worker %d times', count + 1),
      history = redis.call('HGET', attempts, ids[1]) or '', crashes = string.format('%d', count + 1),
      died = string.format('%d', now),
    })
    local text = redis.call('HGET', letters, ids[1]) -- see ack.lua: two orders of one id
    local readable, other = pcall(cjson.decode, text or '{}')
    local same = not text or readable and type(other) == 'table' and type(other.message) == 'string' and who(other.message) == who(messages[1])
    key = same and ids[1] or 'raw:' .. redis.sha1hex(messages[1])
  end
end

redis.call('ZREM', leases, id)
drop(batch, orders, id, entries)
if letter then
  put_letter(dead, letters, index, key, letter, now)
  redis.call('HDEL', attempts, ids[1])
  redis.call('HDEL', crashes, ids[1])
  return 1
end
for i = 1, #ids do
  redis.call('HINCRBY', crashes, ids[i], 1)
end
if #front > 0 then
  redis.call('RPUSH', ready, unpack(front))
  if token == 0 then
    redis.call('LPUSH', wake, '1')
  end
end
return #front
