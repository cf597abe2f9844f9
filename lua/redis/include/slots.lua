-- slots: the order ids that one buyer holds in a sale, as one text: comma-separated by slot, from 1. A slot whose order
-- was returned is empty. backend/redis/keyspace/slots.go reads and writes the same text.

-- assign_slot puts an order into the first empty slot. It returns the slot and the new text; nil and the order in the
-- last used slot if per_buyer orders are held already; 0 if the order has a slot. text may be nil or false: no slots.
local function assign_slot(text, id, per_buyer)
  if not text then
    return 1, id
  end
  local slot, count, latest, slots, n = nil, 0, nil, {}, 0
  for held in string.gmatch(text .. ',', '([^,]*),') do
    n = n + 1
    slots[n] = held
    if held == id then
      return 0
    elseif held == '' then
      slot = slot or n
    else
      count, latest = count + 1, held
    end
  end
  if count >= per_buyer then
    return nil, latest
  end
  slot = slot or n + 1
  slots[slot] = id
  return slot, table.concat(slots, ',')
end

-- release_slot empties the slot of an order. It returns the new text, or nil if the order has no slot. A buyer without
-- orders keeps an empty text: edges still pass a replay of an earlier request, and a slower load of the sale does not
-- restore the order.
local function release_slot(text, id)
  local freed, found = string.gsub(',' .. (text or '') .. ',', ',' .. id .. ',', ',,', 1)
  if found == 0 then
    return nil
  end
  return (string.gsub(string.sub(freed, 2, -2), '^,+$', ''))
end

-- slot_of returns the slot of an order, or nil.
local function slot_of(text, id)
  local n = 0
  for held in string.gmatch((text or '') .. ',', '([^,]*),') do
    n = n + 1
    if held == id then
      return n
    end
  end
end
