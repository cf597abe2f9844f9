-- dead_retry: put a dead order back at the front of the queue, with its failures and crashes forgotten. One that holds no unit takes one first.
-- One that has another place of its buyer than when it was accepted is told so.
--
-- KEYS 1 dead      zset    dead order ids by time of death, ms
--      2 letters   hash    order id -> why it died, JSON
--      3 ready     list    newest left; its front is its right end
--      4 wake      list    at most one token
--      5 attempts  hash    order id -> failures
--      6 crashes   hash    order id -> leases that ran out
--      7 guard     hash    rebuilding: the shard is held
--      8 sale      hash    the order's sale: per_buyer, accepted
--      9 stock     string  units left
--     10 buyers    hash    buyer -> order ids by place, comma-separated
--     11 index   zset    a line for each letter, by sale: see include/dead_letters
-- ARGV 1 order id
-- Answers 1, 0: there is no such dead letter, -1: it is being cancelled, -2: there is no unit for it, or -3: its buyer has no place for it.

-- include dead_letters

local dead, letters, ready, wake, attempts, crashes, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local sale, stock, buyers, index = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id = ARGV[1]

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local text = redis.call('HGET', letters, id)
if not text then
  return 0
end
local letter = cjson.decode(text)
if letter.state ~= 'dead' then
  return -1
end
redis.call('ZCARD', dead) -- these five only to fail before anything is written, should a key be of another type
redis.call('LLEN', ready)
redis.call('HLEN', attempts)
redis.call('HLEN', crashes)
redis.call('ZCARD', index)
local token = redis.call('LLEN', wake)

local message = letter.message
local sale_id, was, number, buyer = string.match(message, '^%d+ (%S+) (%d+) (%d+) (.+)$')
local def = redis.call('HMGET', sale, 'per_buyer', 'accepted')
local per_buyer = tonumber(def[1] or '') or 0
local places, nth, own, count, n = {}, nil, nil, 0, 0
for place in string.gmatch((redis.call('HGET', buyers, buyer or '') or '') .. ',', '([^,]*),') do
  n = n + 1
  places[n] = place
  if place == '' then
    nth = nth or n
  else
    count = count + 1
    own = place == id and n or own
  end
end
local function at(place, serial)
  return id .. ' ' .. sale_id .. ' ' .. place .. ' ' .. serial .. ' ' .. buyer
end
local serial
if letter.unit == 'none' then
  local left = tonumber(redis.call('GET', stock) or '') or 0
  if not def[1] or not def[2] or left < 1 then
    return -2
  elseif count >= per_buyer then
    return -3
  end
  nth = nth or n + 1
  places[nth] = id
  serial = string.format('%d', tonumber(def[2]) + 1)
  message = at(nth, serial)
elseif own and own ~= tonumber(was) and own <= per_buyer then -- a rebuild has moved it: others had its place
  message = at(own, number)
end

drop_letter(dead, letters, index, id)
redis.call('HDEL', attempts, id)
redis.call('HDEL', crashes, id)
if serial then
  redis.call('HSET', sale, 'accepted', serial)
  redis.call('DECR', stock)
  redis.call('HSET', buyers, buyer, table.concat(places, ','))
end
redis.call('RPUSH', ready, message)
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return 1
