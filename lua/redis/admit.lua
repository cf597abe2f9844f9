-- admit: decide a group of purchases from one sale, one after the other, and put the orders of those that get a unit on the queue in the
-- same step. What all of them need is read and written once.
--
-- Reads and decides first, writes last; a refusal writes nothing. Replay-safe: run twice with the same order ids (a client
-- that retries after a lost reply), it answers "accepted" twice and takes the units once.
--
-- KEYS 1 sale      hash    switch, opens_at, closes_at (ms), per_buyer, version, accepted
--      2 stock     string  units left
--      3 buyers    hash    buyer -> order ids by place, comma-separated; a place given back is empty
--      4 ready     list    queue, newest left
--      5 wake      list    at most one token
--      6.. dedup   string  "<fingerprint> <order id>" of the request key of one purchase each
--      then, if orders go through the stream and not to the list: orders, stream
--      last, for each purchase that traces names: trace, string, its traceparent
-- ARGV 1 sale id
--      then for each purchase four:
--      order id (decimal; never a Lua number: it exceeds 2^53), buyer, fingerprint of what is asked (no spaces), how long dedup is kept (ms)
--      then, if it is bounded: how many messages ready may hold; with so many in it, nobody gets a unit
--      then: "1" if a signal may say how many units are left; that the last one is sold is always signalled (see signal.Type)
--      last, if purchases are traced: traces, "<how long they are kept (ms)>" and for each, in their order, " <which purchase, from 1> <traceparent>"
-- Answers one string with a line for each purchase, the outcome and what belongs to it. <serial> is how many orders the sale has accepted:
--      "accepted" "replayed <id>" "key_reused" "already_bought <id>" "not_open <opens_at> <now> <version> <serial>"
--      "sold_out <version> <serial>" "paused <version> <serial>" "closed <version> <serial>" "queue_full" "unknown_sale"

local call, match, format, concat = redis.call, string.match, string.format, table.concat
local sale, stock, buyers, ready, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local sale_id = ARGV[1]
local size = math.floor((#ARGV - 1) / 4)
local traces, traced = ARGV[4 * size + 4], {}
for i, parent in string.gmatch(traces or '', ' (%d+) (%S+)') do
  traced[#traced + 1] = { tonumber(i), parent }
end
local orders = #KEYS - #traced > 5 + size and KEYS[6 + size] or nil

-- What is there: of the sale, of each request key, of each buyer.
local def = call('HMGET', sale, 'switch', 'opens_at', 'closes_at', 'per_buyer', 'version', 'accepted')
local switch, per_buyer, version, serial = def[1], tonumber(def[4]), def[5], tonumber(def[6]) or 0
local left = tonumber(call('GET', stock) or '')
if not switch or not left then
  return string.rep('unknown_sale\n', size - 1) .. 'unknown_sale'
end
local names = {}
for i = 1, size do
  names[i] = ARGV[4 * i - 1]
end
local seen, held = call('MGET', unpack(KEYS, 6, 5 + size)), call('HMGET', buyers, unpack(names))
if size > 1 then -- a request or a buyer may come twice in a group: the later one sees what the earlier one did
  local by_key, by_buyer = {}, {}
  for i = 1, size do
    by_key[KEYS[5 + i]], by_buyer[names[i]] = seen[i], held[i]
  end
  seen, held = by_key, by_buyer
else
  seen, held = { [KEYS[6]] = seen[1] }, { [names[1]] = held[1] }
end
local token = call('LLEN', wake)
local room = (tonumber(ARGV[4 * size + 2] or '') or math.huge) - call('LLEN', ready)
if orders then
  room = room - call('XLEN', orders)
  if room < size then -- perhaps: some of the entries are leased
    local leased = redis.pcall('XPENDING', orders, 'orders')
    room = room + (leased.err and 0 or leased[1])
  end
end

-- closed_by says why nobody gets a unit, however many there are.
local function closed_by()
  if switch == 'closed' then
    return 'closed'
  end
  local opens_at, closes_at = tonumber(def[2]), tonumber(def[3])
  local time = call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if closes_at > 0 and now >= closes_at then
    return 'closed'
  elseif switch == 'paused' then
    return 'paused'
  elseif now < opens_at then
    return format('not_open %d %d', opens_at, now)
  end
end
local closed = closed_by()

-- place_for finds the order's place among those that its buyer holds: nth and the new text; nil and the latest order id, if all are taken;
-- or 0, if the order itself is among them.
local function place_for(id, text)
  if not text then
    return 1, id
  end
  local nth, count, latest, places, n = nil, 0, nil, {}, 0
  for place in string.gmatch(text .. ',', '([^,]*),') do
    n = n + 1
    places[n] = place
    if place == id then
      return 0
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
  return nth, concat(places, ',')
end

local answers, messages, winners, requests, n, w, r = {}, {}, {}, {}, 0, 0, 0
for i = 1, size do
  local at = 4 * i - 2
  local id, buyer, fingerprint, key = ARGV[at], ARGV[at + 1], ARGV[at + 2], KEYS[5 + i]
  local answer
  local before = seen[key]
  if before then
    local was, got = match(before, '^(%S+) (%d+)$')
    if got == id then
      answer = 'accepted'
    elseif was ~= fingerprint then
      answer = 'key_reused'
    else
      answer = 'replayed ' .. got
    end
  else
    local nth, text = place_for(id, held[buyer])
    if not nth then
      answer = 'already_bought ' .. text
    elseif nth == 0 then
      answer = 'accepted'
    elseif closed then
      answer = format('%s %s %d', closed, version, serial)
    elseif left <= 0 then
      answer = format('sold_out %s %d', version, serial)
    elseif room <= 0 then
      answer = 'queue_full'
    else
      answer = 'accepted'
      left, serial, room = left - 1, serial + 1, room - 1
      local value = fingerprint .. ' ' .. id
      held[buyer], seen[key] = text, value
      n = n + 1
      messages[n] = id .. ' ' .. sale_id .. ' ' .. nth .. ' ' .. format('%d', serial) .. ' ' .. buyer
      winners[w + 1], winners[w + 2] = buyer, text
      requests[r + 1], requests[r + 2], requests[r + 3] = key, value, ARGV[at + 3]
      w, r = w + 2, r + 3
    end
  end
  answers[i] = answer
end

if n > 0 then
  -- The first write is the one that may still fail, should the key be of another type or the memory full; the others then cannot.
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
  for i, t in ipairs(traced) do -- shown is not sold: should it fail, the order stands
    if answers[t[1]] == 'accepted' then
      redis.pcall('SET', KEYS[#KEYS - #traced + i], t[2], 'PX', match(traces, '^%d+'))
    end
  end
  if left == 0 or ARGV[4 * size + 3] == '1' then
    redis.pcall('PUBLISH', string.match(sale, '^(.-)sale:') .. 'sale_notifications',
      format('{"v":1,"type":"%s","sale":"%s","left":%d,"version":%s}', left == 0 and 'sold_out' or 'left', sale_id, left, version))
  end
end
return concat(answers, '\n')
