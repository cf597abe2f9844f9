-- dead_finish_cancel: remove a dead order whose cancelling was begun; give its unit and its buyer's place back if asked to. An order that is
-- a row gives them back through give_back.
--
-- Exactly once, because the dead letter guards it. A unit goes back with its place and in no other way: the buyer's place is what proves that
-- the order ever took one, and a message that somebody has put on the queue by hand has none. Where Redis does not hold the sale's stock there
-- is nothing to give back to: the stock will be counted from SQL, where this order is cancelled. The sale counts a return, so that adopt does
-- not take the order for a lost one.
--
-- KEYS 1 dead     zset    dead order ids by time of death, ms
--      2 letters  hash    order id -> why it died, JSON
--      3 stock    string  units left of the sale
--      4 buyers   hash    buyer -> order ids by place, comma-separated; a place given back is empty
--      5 guard    hash    rebuilding: the shard is held
--      6 sale     hash    returned
--      7 index  zset    a line for each letter, by sale: see include/dead_letters
-- ARGV 1 order id
--      2 buyer
--      3 "1": give the unit and the place back
-- Answers 1, 0: there is no such dead letter, or -1: its cancelling was never begun.

-- include dead_letters

local dead, letters, stock, buyers, guard, sale, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, buyer, give_back = ARGV[1], ARGV[2], ARGV[3] == '1'

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
local text = redis.call('HGET', letters, id)
if not text then
  return 0
end
local letter = cjson.decode(text)
if letter.state ~= 'cancelling' then
  return -1
end
give_back = give_back and letter.unit ~= 'none' -- see restore_orders.lua
redis.call('ZCARD', dead) -- these two only to fail before anything is written, should a key be of another type
redis.call('ZCARD', index)
local returned = tonumber(redis.call('HGET', sale, 'returned') or '')

local loaded, places, held = false, nil, 0
if give_back then
  loaded = tonumber(redis.call('GET', stock) or '') ~= nil
  local ids = redis.call('HGET', buyers, buyer)
  if ids then
    places, held = string.gsub(',' .. ids .. ',', ',' .. id .. ',', ',,', 1)
  end
end

drop_letter(dead, letters, index, id)
if returned then -- otherwise the sale is not here, and will be loaded with another number
  redis.call('HSET', sale, 'returned', string.format('%d', returned + 1))
end
if loaded and held > 0 and redis.call('INCR', stock) == 1 then
  local prefix, sale_id = string.match(stock, '^(.-)sale:(.*):stock$')
  redis.pcall('PUBLISH', prefix .. 'sale_notifications', string.format('{"v":1,"type":"restocked","sale":"%s","left":1}', sale_id))
end
if held > 0 then -- the buyer stays, as in give_back
  places = string.gsub(string.sub(places, 2, -2), '^,+$', '')
  redis.call('HSET', buyers, buyer, places)
end
return 1
