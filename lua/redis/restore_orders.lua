-- restore_orders: restores accepted orders of one sale that Redis has lost: their unit, their slot and their message.
--
-- The script is idempotent by order id: an order that has a slot or a dead letter is known and does not change. The
-- caller has checked that no order was a row. An order can have become a row since then. Then its buyer still has the
-- slot; or the order was cancelled, its slot was released, and the field returned of the sale has changed. If no unit
-- is left, or the buyer has no empty slot, the order is stored as a dead letter that holds no unit (unit "none"), for
-- an admin to decide. No more units are assigned than are left.
--
-- KEYS 1 guard    hash    fence: number of the last rebuild; deployment
--      2 sale     hash    per_buyer, accepted, returned, segment
--      3 stock    string  units left
--      4 buyers   hash    buyer -> order ids by slot (include/slots)
--      5 ready    list    queue, newest left
--      6 wake     list    at most one token
--      7 dead     zset    keys of dead letters by the time they were added, ms
--      8 letters  hash    key -> dead letter, JSON
--      9 index    zset    dead letters by sale (include/dead_letters)
-- ARGV 1 "<fence> <deployment>" known to the caller   2 sale id   3 returned of the sale, read before the rows
--      then two per order: order id (decimal), buyer
-- Returns one character per order: k known, r restored, u unbacked (no unit or slot). Or, and nothing changed:
--      "fenced" if another rebuild has begun; "unknown_sale"; "returned" if an order is not known and the field
--      returned of the sale has changed.

-- include clock
-- include slots
-- include dead_letters
-- include segment

local guard, sale, stock, buyers, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local wake, dead, letters, index = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local sale_id = ARGV[2]

-- include check_fence
local def = redis.call('HMGET', sale, 'per_buyer', 'accepted', 'returned', 'segment')
local per_buyer, serial = tonumber(def[1] or ''), tonumber(def[2] or '')
local left = tonumber(redis.call('GET', stock) or '')
local base = first_serial(def[4])
if not per_buyer or not serial or not left then
  return 'unknown_sale'
end
redis.call('LLEN', ready) -- fails before anything is written if the key has the wrong type
check_letter_types(dead, letters, index)
local token = redis.call('LLEN', wake)
local now = now_ms()

local held, answers, messages, slots, deaths = {}, {}, {}, {}, {}
for i = 4, #ARGV, 2 do
  local id, buyer = ARGV[i], ARGV[i + 1]
  if held[buyer] == nil then
    held[buyer] = redis.call('HGET', buyers, buyer) or ''
  end
  local slot, text = assign_slot(held[buyer], id, per_buyer)
  local answer, reason
  if slot == 0 or deaths[id] or redis.call('HEXISTS', letters, id) == 1 then
    answer = 'k'
  elseif (def[3] or '') ~= ARGV[3] then
    return 'returned'
  elseif not slot then
    answer, reason = 'u', 'Redis lost this order, and its buyer holds order ' .. text .. ' in its slot'
  elseif left < 1 then
    answer, reason = 'u', 'Redis lost this order, and its unit was sold again'
  else
    answer = 'r'
    left, serial = left - 1, serial + 1
    held[buyer] = text
    local number = string.format('%d', base + serial)
    messages[#messages + 1] = id .. ' ' .. sale_id .. ' ' .. slot .. ' ' .. number .. ' ' .. buyer
    slots[#slots + 1] = buyer
    slots[#slots + 1] = text
  end
  if reason then
    local message = id .. ' ' .. sale_id .. ' 1 ' .. string.format('%d', base + math.max(serial, 1)) .. ' ' .. buyer
    deaths[id] = encode_letter({ unit = 'none', message = message, reason = reason }, now)
  end
  answers[#answers + 1] = answer
end

if #messages > 0 then
  redis.call('LPUSH', ready, unpack(messages))
  redis.call('HSET', sale, 'accepted', string.format('%d', serial))
  redis.call('DECRBY', stock, #messages)
  redis.call('HSET', buyers, unpack(slots))
  if token == 0 then
    redis.call('LPUSH', wake, '1')
  end
end
for id, letter in pairs(deaths) do
  put_letter(dead, letters, index, id, letter, now)
end
return table.concat(answers)
