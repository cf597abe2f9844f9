-- admit: decides a group of purchases from one sale, in order, and queues the orders of those that get a unit, in one
-- step. State that the purchases share is read and written once per group.
--
-- All reads and decisions come before all writes, and a refusal writes nothing. The script is replay-safe: run again
-- with the same order ids, it returns "accepted" again and takes no second unit.
--
-- KEYS 1 sale    hash    switch, opens_at, closes_at (ms), per_buyer, version, accepted, segment
--      2 stock   string  units left
--      3 buyers  hash    buyer -> order ids by slot (include/slots)
--      4 ready   list    queue, newest left
--      5 wake    list    at most one token
--      then per purchase with a dedup key: dedup  string  "<fingerprint> <order id>" of its request key
--      then, if orders are queued in the stream: orders  stream
--      then per traced purchase: trace  string  its traceparent
-- ARGV 1 sale id; for a sale with several segments "<sale id> <index>/<spread>", the home of the buyers
--      2 largest number of messages waiting for a worker; at that number no purchase gets a unit; '' for no limit
--      3 "1" to publish how many units are left; the sale of the last unit is always published
--      4 "<lifetime of trace (ms)>", and for each traced purchase in order " <purchase, from 1> <traceparent>"; or ''
--      then three per purchase: order id (decimal text; a Lua number is exact up to 2^53 only), buyer, and the request,
--        which the slots store (include/slots); or "<fingerprint> <lifetime of dedup (ms)>", which has a dedup key
-- Returns one string, one line per purchase: the outcome and its values. <serial> is the number of orders
--      accepted so far:
--      "accepted" "replayed <id>" "key_reused" "already_bought <id>" "not_open <opens_at> <now> <version> <serial>"
--      "sold_out <version> <serial>" "paused <version> <serial>" "closed <version> <serial>" "queue_full"
--      "unknown_sale". Or an error that begins with SEGMENT, if this shard does not hold that segment.

-- include clock
-- include slots
-- include notify
-- include segment

local call, find, match, format, concat = redis.call, string.find, string.match, string.format, table.concat
local sale, stock, buyers, ready, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local sale_id, home = match(ARGV[1], '^(%S+) ?(%S*)$')
local size = (#ARGV - 4) / 3
local traces, traced = ARGV[4], {}
for i, parent in string.gmatch(traces, ' (%d+) (%S+)') do
  traced[#traced + 1] = { tonumber(i), parent }
end
local names, fingerprints, lifetimes, keyed = {}, {}, {}, 0
for i = 1, size do
  names[i] = ARGV[3 * i + 3]
  local request = ARGV[3 * i + 4]
  if find(request, ' ', 1, true) then
    fingerprints[i], lifetimes[i] = match(request, '^(%S*) (%d+)$')
    keyed = keyed + 1
  end
end
local orders = #KEYS - #traced > 5 + keyed and KEYS[6 + keyed] or nil

local def = call('HMGET', sale, 'switch', 'opens_at', 'closes_at', 'per_buyer', 'version', 'accepted', 'segment')
local switch, per_buyer, version, serial = def[1], tonumber(def[4]), def[5], tonumber(def[6]) or 0
local left = tonumber(call('GET', stock) or '')
if not switch or not left then
  return string.rep('unknown_sale\n', size - 1) .. 'unknown_sale'
end
if (def[7] or '') ~= home then -- a buyer would get slots in two segments
  return redis.error_reply('SEGMENT this shard holds segment ' .. (def[7] or '0/1') .. ' of the sale')
end
local base = first_serial(def[7])
-- By buyer and by key: the later of two purchases of a buyer in a group sees the result of the earlier one.
local seen, held = {}, {}
local texts = call('HMGET', buyers, unpack(names))
for i = 1, size do
  held[names[i]] = texts[i]
end
if keyed > 0 then
  local stored = call('MGET', unpack(KEYS, 6, 5 + keyed))
  for i = 1, keyed do
    seen[KEYS[5 + i]] = stored[i]
  end
end
local token = call('LLEN', wake)
local room = (tonumber(ARGV[2]) or math.huge) - call('LLEN', ready)
if orders then
  room = room - call('XLEN', orders)
  if room < size then -- leased entries of the stream do not count
    local leased = redis.pcall('XPENDING', orders, 'orders')
    room = room + (leased.err and 0 or leased[1])
  end
end

-- sale_wide_refusal returns the refusal that applies to every purchase whatever the stock, or nil.
local function sale_wide_refusal()
  if switch == 'closed' then
    return 'closed'
  end
  local opens_at, closes_at, now = tonumber(def[2]), tonumber(def[3]), now_ms()
  if closes_at > 0 and now >= closes_at then
    return 'closed'
  elseif switch == 'paused' then
    return 'paused'
  elseif now < opens_at then
    return format('not_open %d %d', opens_at, now)
  end
end
local refusal = sale_wide_refusal()

local answers, messages, winners, requests, n, w, r, k = {}, {}, {}, {}, 0, 0, 0, 5
for i = 1, size do
  local id, buyer, request, fingerprint = ARGV[3 * i + 2], names[i], ARGV[3 * i + 4], fingerprints[i]
  local answer, key, was, got
  if fingerprint then
    key, request, k = KEYS[k + 1], nil, k + 1
    was, got = match(seen[key] or '', '^(%S*) (%d+)$')
  else
    got = order_of(held[buyer], request)
  end
  if got == id then
    answer = 'accepted'
  elseif got and was ~= fingerprint then
    answer = 'key_reused'
  elseif got then
    answer = 'replayed ' .. got
  else
    local slot, text = assign_slot(held[buyer], id, per_buyer, request)
    if not slot then
      answer = 'already_bought ' .. text
    elseif slot == 0 then
      answer = 'accepted'
    elseif refusal then
      answer = format('%s %s %d', refusal, version, serial)
    elseif left <= 0 then
      answer = format('sold_out %s %d', version, serial)
    elseif room <= 0 then
      answer = 'queue_full'
    else
      answer = 'accepted'
      left, serial, room = left - 1, serial + 1, room - 1
      held[buyer] = text
      n = n + 1
      local slot_text = slot == 1 and '1' or slot -- Lua converts a number slowly, as a floating-point one
      messages[n] = id .. ' ' .. sale_id .. ' ' .. slot_text .. ' ' .. format('%d', base + serial) .. ' ' .. buyer
      winners[w + 1], winners[w + 2] = buyer, text
      w = w + 2
      if key then
        local value = fingerprint .. ' ' .. id
        seen[key] = value
        requests[r + 1], requests[r + 2], requests[r + 3] = key, value, lifetimes[i]
        r = r + 3
      end
    end
  end
  answers[i] = answer
end

if n > 0 then
  -- Only the first write can fail (wrong type, full memory); Redis does not refuse the later ones.
  if orders then
    for i = 1, n do
      call('XADD', orders, '*', 'm', messages[i])
    end
  else
    call('LPUSH', ready, unpack(messages))
  end
  call('HSET', sale, 'accepted', format('%d', serial))
  call('DECRBY', stock, n)
  call('HSET', buyers, unpack(winners))
  for i = 1, r, 3 do
    call('SET', requests[i], requests[i + 1], 'NX', 'PX', requests[i + 2])
  end
  if token == 0 then
    call('LPUSH', wake, '1')
  end
  for i, t in ipairs(traced) do -- pcall: a failure to store a trace does not fail the purchase
    if answers[t[1]] == 'accepted' then
      redis.pcall('SET', KEYS[#KEYS - #traced + i], t[2], 'PX', match(traces, '^%d+'))
    end
  end
  if left == 0 or ARGV[3] == '1' then
    notify(sale, left == 0 and home == '' and 'sold_out' or 'left', left, version) -- other segments may have units
  end
end
return concat(answers, '\n')
