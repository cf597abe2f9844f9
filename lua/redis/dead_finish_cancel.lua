-- dead_finish_cancel: deletes the letter of an order that is being cancelled, and returns its unit and its
-- buyer's slot on request. An order that is a row in SQL returns them through return_unit instead.
--
-- The letter exists once, so the unit is returned once. A unit is returned together with its slot only: the slot
-- proves that the order took a unit, and a message that was added to the queue by hand has none. If Redis does not
-- hold the sale's stock, no unit is returned: the stock is counted from SQL later, where this order is cancelled. The
-- sale counts the return, so that restore_orders does not take the order for a lost one.
--
-- KEYS 1 dead     zset    keys of dead letters by the time they were added, ms
--      2 letters  hash    key -> dead letter, JSON
--      3 stock    string  units left of the sale
--      4 buyers   hash    buyer -> order ids by slot (include/slots)
--      5 guard    hash    rebuilding: a rebuild holds the shard; deployment
--      6 sale     hash    returned: number of the last return
--      7 index    zset    dead letters by sale (include/dead_letters)
-- ARGV 1 order id
--      2 buyer
--      3 "1" to return the unit and the slot
--      4 id of the deployment in SQL (include/check_owner)
-- Returns 1; 0 if the order has no letter; or -1 if its cancellation has not begun. Or an error that begins
--      with FOREIGN, and nothing changed.

-- include slots
-- include notify
-- include dead_letters

local dead, letters, stock, buyers, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local sale, index = KEYS[6], KEYS[7]
local id, buyer, wanted, deployment = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]

-- include check_shard
-- include check_owner
local letter, missing = find_letter(letters, id, 'cancelling')
if not letter then
  return missing
end
check_letter_types(dead, letters, index)
local returned = tonumber(redis.call('HGET', sale, 'returned') or '')

local loaded, slots = false, nil
if wanted and letter.unit ~= 'none' then
  loaded = tonumber(redis.call('GET', stock) or '') ~= nil
  slots = release_slot(redis.call('HGET', buyers, buyer), id)
end

drop_letter(dead, letters, index, id)
if returned then -- a sale that Redis does not hold is loaded with a higher number later
  redis.call('HSET', sale, 'returned', string.format('%d', returned + 1))
end
if loaded and slots and redis.call('INCR', stock) == 1 then -- it was sold out
  notify(sale, 'restocked', 1)
end
if slots then
  redis.call('HSET', buyers, buyer, slots)
end
return 1
