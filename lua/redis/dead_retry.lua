-- dead_retry: puts a dead order back to the front of the queue and deletes its failures and crashes. An order without
-- a unit takes a unit and a slot first. The message of an order whose slot a rebuild has changed gets the new slot.
--
-- KEYS 1 dead      zset    keys of dead letters by the time they were added, ms
--      2 letters   hash    key -> dead letter, JSON
--      3 ready     list    newest left
--      4 wake      list    at most one token
--      5 attempts  hash    order id -> failures
--      6 crashes   hash    order id -> number of expired leases
--      7 guard     hash    rebuilding: a rebuild holds the shard; deployment
--      8 sale      hash    per_buyer, accepted, segment of the order's sale
--      9 stock     string  units left
--     10 buyers    hash    buyer -> order ids by slot (include/slots)
--     11 index     zset    dead letters by sale (include/dead_letters)
-- ARGV 1 order id   2 id of the deployment in SQL (include/check_owner)
-- Returns 1; 0 if the order has no letter; -1 if it is being cancelled; -2 if no unit is left for it; or -3 if its
--      buyer has no empty slot. Or an error that begins with FOREIGN, and nothing changed.

-- include slots
-- include requeue
-- include dead_letters
-- include segment

local dead, letters, ready, wake, attempts, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local guard, sale, stock, buyers, index = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id, deployment = ARGV[1], ARGV[2]

-- include check_shard
-- include check_owner
local letter, missing = find_letter(letters, id, 'dead')
if not letter then
  return missing
end
check_letter_types(dead, letters, index)
redis.call('LLEN', ready) -- these three fail before anything is written if a key has the wrong type
redis.call('HLEN', attempts)
redis.call('HLEN', crashes)
local token = redis.call('LLEN', wake)

local message = letter.message
local sale_id, was, number, buyer = string.match(message, '^%d+ (%S+) (%d+) (%d+) (.+)$')
local def = redis.call('HMGET', sale, 'per_buyer', 'accepted', 'segment')
local per_buyer = tonumber(def[1] or '') or 0
local held = redis.call('HGET', buyers, buyer or '')
local accepted, slots
if letter.unit == 'none' then
  local left = tonumber(redis.call('GET', stock) or '') or 0
  if not def[1] or not def[2] or left < 1 then
    return -2
  end
  local slot
  slot, slots = assign_slot(held, id, per_buyer)
  if not slot or slot == 0 then
    return -3
  end
  accepted = tonumber(def[2]) + 1
  local serial = string.format('%d', first_serial(def[3]) + accepted)
  message = id .. ' ' .. sale_id .. ' ' .. slot .. ' ' .. serial .. ' ' .. buyer
else
  local slot = slot_of(held, id)
  if slot and slot ~= tonumber(was) and slot <= per_buyer then
    message = id .. ' ' .. sale_id .. ' ' .. slot .. ' ' .. number .. ' ' .. buyer
  end
end

drop_letter(dead, letters, index, id)
redis.call('HDEL', attempts, id)
redis.call('HDEL', crashes, id)
if accepted then
  redis.call('HSET', sale, 'accepted', string.format('%d', accepted))
  redis.call('DECR', stock)
  redis.call('HSET', buyers, buyer, slots)
end
requeue(ready, wake, token, { message })
return 1
