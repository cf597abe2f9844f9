-- restore_orders: give orders of one sale that were accepted by a Redis that has lost them their unit, their place and their message again.
--
-- Idempotent by order id: an order that holds a place of its buyer, or is a dead letter, is known and left alone. The caller has made sure
-- that none of them was a row. One may have become a row since, but not without a trace: either its buyer has the place still, or it was given back,
-- and then returned is another number. An order for which there is no unit, or whose buyer holds all the places, becomes a dead letter that holds
-- nothing (unit "none"): a person decides. Never more units are given than there are.
--
-- KEYS 1 guard    hash    fence: number of the last rebuild
--      2 sale     hash    per_buyer, accepted, returned
--      3 stock    string  units left
--      4 buyers   hash    buyer -> order ids by place, comma-separated; a place given back is empty
--      5 ready    list    queue, newest left
--      6 wake     list    at most one token
--      7 dead     zset    dead order ids by time of death, ms
--      8 letters  hash    order id -> why it died, JSON
--      9 index  zset    a line for each letter, by sale: see include/dead_letters
-- ARGV 1 fence that the caller knows   2 sale id   3 returned of the sale, before the caller looked for rows
--      then for each order two: order id (decimal), buyer
-- Answers a letter for each order: k known, a adopted, u dead for want of a unit or place; or "fenced": another rebuild has begun;
-- or "unknown_sale"; or "returned": an order is not known, and what the caller saw of the rows is too old to tell. With the last three nothing has
-- changed.

-- include dead_letters

local call = redis.call
local guard, sale, stock, buyers, ready, wake, dead, letters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local index = KEYS[9]
local sale_id = ARGV[2]

if call('HGET', guard, 'fence') ~= ARGV[1] then
  return 'fenced'
end
local def = call('HMGET', sale, 'per_buyer', 'accepted', 'returned')
local per_buyer, serial = tonumber(def[1] or ''), tonumber(def[2] or '')
local left = tonumber(call('GET', stock) or '')
if not per_buyer or not serial or not left then
  return 'unknown_sale'
end
call('LLEN', ready) -- these three only to fail before anything is written, should a key be of another type
call('ZCARD', dead)
call('ZCARD', index)
local token = call('LLEN', wake)
local time = call('TIME')
local now = string.format('%d', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))

-- place_for answers "known", or the first free place and the new text, or nil and the order that holds the last place.
local function place_for(id, text)
  local nth, count, latest, places, n = nil, 0, nil, {}, 0
  for place in string.gmatch((text or '') .. ',', '([^,]*),') do
    n = n + 1
    places[n] = place
    if place == id then
      return 'known'
    elseif place == '' then
      nth = nth or n
    else
      count, latest = count + 1, place
    end
  end
  if count >= per_buyer then
    return nil, latest
  end
  nth = nth or n + 1
  places[nth] = id
  return nth, table.concat(places, ',')
end

local held, answers, messages, places, deaths = {}, {}, {}, {}, {}
for i = 4, #ARGV, 2 do
  local id, buyer = ARGV[i], ARGV[i + 1]
  if held[buyer] == nil then
    held[buyer] = call('HGET', buyers, buyer) or ''
  end
  local nth, text = place_for(id, held[buyer])
  local answer, why
  if nth == 'known' or deaths[id] or call('HEXISTS', letters, id) == 1 then
    answer = 'k'
  elseif (def[3] or '') ~= ARGV[3] then
    return 'returned'
  elseif not nth then
    answer, why = 'u', 'Redis lost this order, and its buyer holds order ' .. text .. ' in its place'
  elseif left < 1 then
    answer, why = 'u', 'Redis lost this order, and its unit was sold again'
  else
    answer = 'a'
    left, serial = left - 1, serial + 1
    held[buyer] = text
    messages[#messages + 1] = id .. ' ' .. sale_id .. ' ' .. nth .. ' ' .. string.format('%d', serial) .. ' ' .. buyer
    places[#places + 1] = buyer
    places[#places + 1] = text
  end
  if why then
    deaths[id] = cjson.encode({
      state = 'dead', unit = 'none', message = id .. ' ' .. sale_id .. ' 1 ' .. string.format('%d', math.max(serial, 1)) .. ' ' .. buyer,
      reason = why, history = '', crashes = '0', died = now,
    })
  end
  answers[#answers + 1] = answer
end

if #messages > 0 then
  call('LPUSH', ready, unpack(messages))
  call('HSET', sale, 'accepted', string.format('%d', serial))
  call('DECRBY', stock, #messages)
  call('HSET', buyers, unpack(places))
  if token == 0 then
    call('LPUSH', wake, '1')
  end
end
for id, letter in pairs(deaths) do
  put_letter(dead, letters, index, id, letter, now)
end
return table.concat(answers)
