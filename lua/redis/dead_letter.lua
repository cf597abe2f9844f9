-- dead_letter: move texts of a batch that are no messages to the dead letters, so that they neither block the queue nor get lost.
--
-- Their ids are made of the text itself: raw:<sha1>. A batch that holds nothing else is let go.
--
-- KEYS 1 leases   zset  batch ids by deadline, ms
--      2 batch    list  the batch
--      3 dead     zset  dead order ids by time of death, ms
--      4 letters  hash  order id -> why it died, JSON
--      5 guard    hash  rebuilding: the shard is held
--      6 orders   stream  the batch's entries are pending for the consumer of its id
--      7 index  zset  a line for each letter, by sale: see include/dead_letters
-- ARGV 1 batch id
--      2 reason
--      then for each text: the text, and the same in base64 (JSON cannot hold every byte)
-- Answers the number of messages that the batch still holds, or -1: it is not leased any more, and nothing was changed.

-- include entries
-- include dead_letters

local leases, batch, dead, letters, guard, orders, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, reason = ARGV[1], ARGV[2]

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
if not redis.call('ZSCORE', leases, id) then
  return -1
end
local time = redis.call('TIME')
local now = string.format('%d', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('ZCARD', dead) -- these three only to fail before anything is written, should a key be of another type
redis.call('HLEN', letters)
redis.call('ZCARD', index)

local base64 = {}
for i = 3, #ARGV, 2 do
  base64[ARGV[i]] = ARGV[i + 1]
end
local kept, gone, buried = {}, {}, {}
local function bury(text)
  buried[#buried + 1] = {
    id = 'raw:' .. redis.sha1hex(text),
    letter = cjson.encode({
      state = 'dead', raw = base64[text], reason = reason, history = '', crashes = '0', died = now,
    }),
  }
end
for _, text in ipairs(redis.call('LRANGE', batch, 0, -1)) do
  if base64[text] then
    bury(text)
  else
    kept[#kept + 1] = text
  end
end
local entries = pending(orders, id)
for i = 1, #entries do
  local entry = redis.call('XRANGE', orders, entries[i], entries[i])[1]
  local text = entry and text_of(entry)
  if text and base64[text] then
    bury(text)
    gone[#gone + 1] = entries[i]
  end
end
local left = #kept + #entries - #gone

if left == 0 then
  redis.call('ZREM', leases, id)
  drop(batch, orders, id, entries)
else
  redis.call('DEL', batch)
  if #kept > 0 then
    redis.call('RPUSH', batch, unpack(kept))
  end
  if #gone > 0 then
    redis.call('XACK', orders, group, unpack(gone))
    redis.call('XDEL', orders, unpack(gone))
  end
end
for _, b in ipairs(buried) do
  put_letter(dead, letters, index, b.id, b.letter, now)
end
return left
