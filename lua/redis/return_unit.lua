-- return_unit: returns the units of orders of one sale that were cancelled in SQL, and releases their slots. Each order
-- returns one unit, however often the script runs: an order holds its unit while it has a slot, and the number of its
-- return is kept until its row has the number.
--
-- KEYS 1 sale     hash    version; returned: number of the last return
--      2 stock    string  units left
--      3 buyers   hash    buyer -> order ids by slot (include/slots)
--      4 returns  hash    order id -> number of its return, until its row has the number
--      5 guard    hash    deployment
-- ARGV 1 id of the deployment of the orders (include/check_owner)
--      then two per order, at most 1000 orders: order id, buyer
-- Returns per order the number of its return, from 1, or 0 if it held no unit here; nothing if Redis does not hold
--      the sale. Or an error that begins with FOREIGN, and nothing changed.

-- include slots
-- include notify

local sale, stock, buyers, returns, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local deployment = ARGV[1]

-- include check_owner
local def = redis.call('HMGET', sale, 'version', 'returned')
local version, returned = def[1], tonumber(def[2] or '0')
if not version or not tonumber(redis.call('GET', stock) or '') then
  return {}
end
local ids, names, n = {}, {}, (#ARGV - 1) / 2
for i = 1, n do
  ids[i], names[i] = ARGV[2 * i], ARGV[2 * i + 1]
end
local known, texts = redis.call('HMGET', returns, unpack(ids)), redis.call('HMGET', buyers, unpack(names))
local held = {}
for i = 1, n do
  held[names[i]] = texts[i] or nil
end

local answers, added, released, numbers, units = {}, {}, {}, {}, 0
for i = 1, n do
  local id, buyer, number = ids[i], names[i], known[i] or numbers[ids[i]]
  local text = release_slot(held[buyer], id)
  if text then
    held[buyer], released[buyer] = text, true
    -- With a number, the unit is on sale already: one load has counted it as left, and another has stored the slot.
    if not number then
      units, returned = units + 1, returned + 1
      number = string.format('%d', returned)
      numbers[id] = number
      added[#added + 1] = id
      added[#added + 1] = number
    end
  end
  answers[i] = number or '0'
end

local slots = {}
for buyer in pairs(released) do
  slots[#slots + 1] = buyer
  slots[#slots + 1] = held[buyer]
end
if #slots > 0 then
  redis.call('HSET', buyers, unpack(slots))
end
if units > 0 then
  redis.call('HSET', returns, unpack(added))
  redis.call('HSET', sale, 'returned', string.format('%d', returned))
  local left = redis.call('INCRBY', stock, string.format('%d', units))
  if left == units then -- it was sold out
    notify(sale, 'restocked', left, version)
  end
end
return answers
