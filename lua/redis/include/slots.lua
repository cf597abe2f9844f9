-- slots: the order ids that one buyer holds in a sale, as one text: comma-separated by slot, from 1. The slot of a
-- returned order is empty; the last slot is not. ":<request>" follows an order without a dedup key. The requests of
-- returned orders follow the slots, each as ";<order id>:<request>". backend/redis/keyspace/slots.go reads and writes
-- the same text.

-- assign_slot puts an order into the first empty slot. It returns the slot and the new text; nil and the order in the
-- last used slot if per_buyer orders are held already; 0 if the order has a slot. text may be nil or false: no slots.
-- request is stored with the order; it may be nil.
local function assign_slot(text, id, per_buyer, request)
  local entry = request and id .. ':' .. request or id
  if not text then
    return 1, entry
  end
  local held, returned = string.match(text, '^([^;]*)(.*)$')
  local slot, count, latest, slots, n = nil, 0, nil, {}, 0
  for one in string.gmatch(held .. ',', '([^,]*),') do
    n = n + 1
    slots[n] = one
    local order = string.match(one, '^[^:]*')
    if order == id then
      return 0
    elseif order == '' then
      slot = slot or n
    else
      count, latest = count + 1, order
    end
  end
  if count >= per_buyer then
    return nil, latest
  end
  slot = slot or n + 1
  slots[slot] = entry
  return slot, table.concat(slots, ',') .. returned
end

-- order_of returns the order of a request that is stored in the text, or nil. All requests have the same length.
local function order_of(text, request)
  local at = text and string.find(text, ':' .. request, 1, true)
  return at and string.match(string.sub(text, 1, at - 1), '[^,;]+$')
end

-- release_slot empties the slot of an order. It returns the new text, or nil if the order has no slot. The text keeps
-- the requests of the 16 orders that were returned last, because a buyer may buy and cancel any number of times. A
-- buyer without orders keeps an empty text and stays on the bypass list, so edges forward a replay of an earlier
-- request. load_buyers does not replace that text, so a slower load of the sale does not restore the order.
local function release_slot(text, id)
  local held, returned = string.match(text or '', '^([^;]*)(.*)$')
  local slots, requests, found = {}, {}, false
  for one in string.gmatch(returned, ';[^;]*') do
    requests[#requests + 1] = one
  end
  for one in string.gmatch(held .. ',', '([^,]*),') do
    if string.match(one, '^[^:]*') == id then
      found = true
      if one ~= id then
        requests[#requests + 1] = ';' .. one
      end
      one = ''
    end
    slots[#slots + 1] = one
  end
  if not found then
    return nil
  end
  local latest = table.concat(requests, '', math.max(1, #requests - 15))
  return string.gsub(table.concat(slots, ','), ',+$', '') .. latest
end

-- slot_of returns the slot of an order, or nil.
local function slot_of(text, id)
  local n = 0
  for one in string.gmatch(string.match(text or '', '^[^;]*') .. ',', '([^,]*),') do
    n = n + 1
    if string.match(one, '^[^:]*') == id then
      return n
    end
  end
end
