-- return_unit: take back the units of orders of one sale that were cancelled in SQL, and free their buyers' places. Each once, however often
-- it is asked for: an order holds its unit while its buyer has it at a place, and what was taken back is remembered until SQL knows.
--
-- A buyer who holds nothing any more stays in the hash, with empty places: edges still let a repetition of the old request through, and a
-- slower load of the sale does not put the old order back.
--
-- KEYS 1 sale     hash    returned counts the orders whose places were taken back
--      2 stock    string  units left
--      3 buyers   hash    buyer -> order ids by place, comma-separated; a place given back is empty
--      4 returns  hash    order id -> number of its return, until SQL knows it
-- ARGV for each order two, at most 1000 orders: order id, buyer
-- Answers for each order the number of its return, from 1, or 0: it held no unit here. An empty array: Redis does not hold the sale.

local call, format = redis.call, string.format
local sale, stock, buyers, returns = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local returned = tonumber(call('HGET', sale, 'returned') or '0')
if call('HEXISTS', sale, 'version') == 0 or not tonumber(call('GET', stock) or '') then
  return {}
end
local ids, names, n = {}, {}, #ARGV / 2
for i = 1, n do
  ids[i], names[i] = ARGV[2 * i - 1], ARGV[2 * i]
end
local known, texts = call('HMGET', returns, unpack(ids)), call('HMGET', buyers, unpack(names))
local held = {}
for i = 1, n do
  held[names[i]] = texts[i] or nil
end

local answers, back, units, freed, given = {}, {}, 0, {}, {}
for i = 1, n do
  local id, buyer, number = ids[i], names[i], known[i] or given[ids[i]]
  local text, found = string.gsub(',' .. (held[buyer] or '') .. ',', ',' .. id .. ',', ',,', 1)
  if found > 0 then
    held[buyer] = string.gsub(string.sub(text, 2, -2), '^,+$', '')
    freed[buyer] = true
    if not number then -- otherwise a load counted the unit as free, and another put the buyer's place in
      units, returned = units + 1, returned + 1
      number = format('%d', returned)
      given[id] = number
      back[#back + 1] = id
      back[#back + 1] = number
    end
  end
  answers[i] = number or '0'
end

local places = {}
for buyer in pairs(freed) do
  places[#places + 1] = buyer
  places[#places + 1] = held[buyer]
end
if #places > 0 then
  call('HSET', buyers, unpack(places))
end
if units > 0 then
  call('HSET', returns, unpack(back))
  call('HSET', sale, 'returned', format('%d', returned))
  local left = call('INCRBY', stock, format('%d', units))
  if left == units then -- it was sold out
    local prefix, sale_id = string.match(sale, '^(.-)sale:(.*)$')
    redis.pcall('PUBLISH', prefix .. 'sale_notifications',
      format('{"v":1,"type":"restocked","sale":"%s","left":%.0f,"version":%s}', sale_id, left, call('HGET', sale, 'version')))
  end
end
return answers
