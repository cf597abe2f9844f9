-- release: give a batch back untouched; no attempt and no crash is counted.
--
-- KEYS 1 leases  zset  batch ids by deadline, ms
--      2 batch   list  the batch, oldest left
--      3 ready   list  newest left; the messages go back to its front, which is its right end
--      4 wake    list  at most one token
--      5 guard   hash  rebuilding: the shard is held
--      6 orders  stream  the batch's entries are pending for the consumer of its id
-- ARGV 1 batch id
-- Answers 1, or 0: the batch is not leased any more, and nothing was changed.

-- include entries

local leases, batch, ready, wake, guard, orders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id = ARGV[1]

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
if not redis.call('ZSCORE', leases, id) then
  return 0
end
local entries = pending(orders, id)
local messages = held(batch, orders, entries)
redis.call('LLEN', ready) -- fails before anything is written, should the key be of another type
local token = redis.call('LLEN', wake)

redis.call('ZREM', leases, id)
drop(batch, orders, id, entries)
if #messages > 0 then
  local front = {}
  for i = #messages, 1, -1 do
    front[#front + 1] = messages[i]
  end
  redis.call('RPUSH', ready, unpack(front))
  if token == 0 then
    redis.call('LPUSH', wake, '1')
  end
end
return 1
