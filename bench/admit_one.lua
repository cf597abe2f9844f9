-- admit one: the baseline. It decides one purchase and, if a unit is left, takes it and queues the order in the same
-- step.
--
-- Reads and decides first, writes last; a refusal writes nothing. Replay-safe: run twice with the same order id (a
-- client that retries after a lost reply), it answers "accepted" twice and takes one unit.
--
-- KEYS 1 sale      hash    switch, opens_at, closes_at (ms), per_buyer, version, accepted
--      2 stock     string  units left
--      3 buyers    hash    buyer -> order ids by slot, comma-separated; a returned slot is empty
--      4 dedup     string  "<fingerprint> <order id>" of this buyer's request key
--      5 ready     list    queue, newest left
--      6 wake      list    at most one token
-- ARGV 1 order id (decimal; never a Lua number: it exceeds 2^53)
--      2 sale id
--      3 buyer
--      4 fingerprint of the request, no spaces
--      5 lifetime of the dedup key, ms
-- Returns one string, the outcome and its details:
--      "accepted <id>" "replayed <id>" "key_reused" "already_bought <id>" "not_open <opens_at> <now> <version>"
--      "sold_out <version>" "paused <version>" "closed <version>" "unknown_sale"

local sale, stock, buyers, dedup, ready, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local id, sale_id, buyer, fingerprint, dedup_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local seen = redis.call('GET', dedup)
if seen then
  local was, got = string.match(seen, '^(%S+) (%d+)$')
  if got == id then
    return 'accepted ' .. id
  elseif was ~= fingerprint then
    return 'key_reused'
  end
  return 'replayed ' .. got
end

local def = redis.call('HMGET', sale, 'switch', 'opens_at', 'closes_at', 'per_buyer', 'version', 'accepted')
local switch, opens_at, closes_at, per_buyer, version = def[1], tonumber(def[2]), tonumber(def[3]), tonumber(def[4]), def[5]
local serial = (tonumber(def[6]) or 0) + 1
local left = tonumber(redis.call('GET', stock) or '')
if not switch or not left then
  return 'unknown_sale'
end

local held = redis.call('HGET', buyers, buyer)
local nth, count, latest, places = nil, 0, nil, {}
if held then
  for place in string.gmatch(held .. ',', '([^,]*),') do
    places[#places + 1] = place
    if place == id then
      return 'accepted ' .. id
    elseif place == '' then
      nth = nth or #places
    else
      count, latest = count + 1, place
    end
  end
end
nth = nth or #places + 1
if count >= per_buyer then
  return 'already_bought ' .. latest
end

if switch == 'closed' then
  return 'closed ' .. version
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if closes_at > 0 and now >= closes_at then
  return 'closed ' .. version
elseif switch == 'paused' then
  return 'paused ' .. version
elseif now < opens_at then
  return string.format('not_open %d %d %s', opens_at, now, version)
elseif left <= 0 then
  return 'sold_out ' .. version
end

places[nth] = id
local token = redis.call('LLEN', wake)
-- Only the first write can fail, if the key has another type or the memory is full. After it the others cannot.
redis.call('LPUSH', ready, id .. ' ' .. sale_id .. ' ' .. nth .. ' ' .. string.format('%d', serial) .. ' ' .. buyer)
redis.call('HSET', sale, 'accepted', string.format('%d', serial))
redis.call('DECR', stock)
redis.call('HSET', buyers, buyer, table.concat(places, ','))
redis.call('SET', dedup, fingerprint .. ' ' .. id, 'NX', 'PX', dedup_ms)
if token == 0 then
  redis.call('LPUSH', wake, '1')
end
return 'accepted ' .. id
