-- dead_letter: moves texts of a batch that are not messages to the dead letters, so that they neither block the queue
-- nor disappear. Their key is raw:<sha1 of the text>. If the batch holds nothing else, it ends.
--
-- KEYS 1 leases   zset    batch ids by deadline, ms
--      2 batch    list    the batch
--      3 dead     zset    keys of dead letters by the time they were added, ms
--      4 letters  hash    key -> dead letter, JSON
--      5 guard    hash    rebuilding: a rebuild holds the shard
--      6 orders   stream  entries of the batch are pending for the consumer with its id
--      7 index    zset    dead letters by sale (include/dead_letters)
-- ARGV 1 batch id
--      2 reason
--      then two per text: the text, and the text in base64 (JSON cannot hold every byte)
-- Returns the number of messages left in the batch; or -1 if the batch is not leased, and nothing changed.

-- include clock
-- include stream
-- include dead_letters

local leases, batch, dead, letters, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local orders, index = KEYS[6], KEYS[7]
local id, reason = ARGV[1], ARGV[2]

-- include check_shard
if not redis.call('ZSCORE', leases, id) then
  return -1
end
local now = now_ms()
check_letter_types(dead, letters, index)

local base64 = {}
for i = 3, #ARGV, 2 do
  base64[ARGV[i]] = ARGV[i + 1]
end
local kept, gone, deaths = {}, {}, {}
local function die(text)
  deaths[#deaths + 1] = {
    key = 'raw:' .. redis.sha1hex(text), letter = encode_letter({ raw = base64[text], reason = reason }, now),
  }
end
for _, text in ipairs(redis.call('LRANGE', batch, 0, -1)) do
  if base64[text] then
    die(text)
  else
    kept[#kept + 1] = text
  end
end
local entries = leased_entries(orders, id)
for i = 1, #entries do
  local entry = redis.call('XRANGE', orders, entries[i], entries[i])[1]
  local text = entry and entry_text(entry)
  if text and base64[text] then
    die(text)
    gone[#gone + 1] = entries[i]
  end
end
local left = #kept + #entries - #gone

if left == 0 then
  redis.call('ZREM', leases, id)
  end_batch(batch, orders, id, entries)
else
  redis.call('DEL', batch)
  if #kept > 0 then
    redis.call('RPUSH', batch, unpack(kept))
  end
  if #gone > 0 then
    redis.call('XACK', orders, group, unpack(gone))
    redis.call('XDEL', orders, unpack(gone))
  end
  if #gone > 0 and #gone == #entries then -- end_batch would not delete it later
    redis.call('XGROUP', 'DELCONSUMER', orders, group, id)
  end
end
for _, d in ipairs(deaths) do
  put_letter(dead, letters, index, d.key, d.letter, now)
end
return left
