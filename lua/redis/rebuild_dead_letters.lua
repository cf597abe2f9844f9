-- rebuild_dead_letters: remove dead letters of orders that are settled in SQL, and add those of orders for which there is no unit or place.
--
-- KEYS 1 guard    hash  fence
--      2 dead     zset  dead order ids by time of death, ms
--      3 letters  hash  order id -> why it died, JSON
--      4 index  zset  a line for each letter, by sale: see include/dead_letters
-- ARGV 1 fence
--      then for each letter three: order id, its message, why it died; an empty message removes the letter
-- Answers "ok", or "fenced", as rebuild_hold.

-- include dead_letters

local guard, dead, letters, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call('HGET', guard, 'fence') ~= ARGV[1] then
  return 'fenced'
end
local time = redis.call('TIME')
local now = string.format('%d', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
for i = 2, #ARGV, 3 do
  local id, message, why = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if message == '' then
    drop_letter(dead, letters, index, id)
  else
    put_letter(dead, letters, index, id, cjson.encode({
      state = 'dead', unit = 'none', message = message, reason = why, history = '', crashes = '0', died = now,
    }), now)
  end
end
return 'ok'
