-- stream: batches that hold entries of the stream orders.
--
-- The stream has one consumer group. A batch is one of its consumers, and the entries pending for the consumer belong
-- to the batch. Entries leave the stream with their batch only.

local group = 'orders'

-- entry_text returns the message of an entry. For an entry that another program added, it returns the fields and values
-- as a JSON array, which is not a message.
local function entry_text(entry)
  local fields = entry[2]
  if #fields == 2 and fields[1] == 'm' then
    return fields[2]
  end
  return cjson.encode(fields)
end

-- leased_entries returns the ids of the entries that a batch holds, oldest first. IDLE is negative because entries
-- have a negative idle time after the clock was set back, and the embedded Redis would leave them out.
local function leased_entries(orders, id)
  local ids = {}
  if redis.call('XLEN', orders) == 0 then
    return ids
  end
  local entries = redis.pcall('XPENDING', orders, group, 'IDLE', '-3000000000000', '-', '+', 1000, id)
  if entries.err then -- no group: nothing was taken from the stream yet
    return ids
  end
  for i = 1, #entries do
    ids[i] = entries[i][1]
  end
  return ids
end

-- listed_messages returns the messages of the list of a batch, oldest first. The list holds the newest left, as ready
-- does.
local function listed_messages(batch)
  local newest_first, messages = redis.call('LRANGE', batch, 0, -1), {}
  local n = #newest_first
  for i = 1, n do
    messages[i] = newest_first[n + 1 - i]
  end
  return messages
end

-- batch_messages returns all messages of a batch, oldest first. entries are the ids of its stream entries.
local function batch_messages(batch, orders, entries)
  local messages = listed_messages(batch)
  if #entries == 0 then
    return messages
  end
  local own = {}
  for i = 1, #entries do
    own[entries[i]] = true
  end
  for _, entry in ipairs(redis.call('XRANGE', orders, entries[1], entries[#entries])) do
    if own[entry[1]] then
      messages[#messages + 1] = entry_text(entry)
    end
  end
  return messages
end

-- end_batch deletes a batch. The same script has acknowledged its messages or stored them elsewhere. Deleting the
-- consumer ends what is pending for it, so no XACK is needed.
local function end_batch(batch, orders, id, entries)
  redis.call('DEL', batch)
  if #entries > 0 then
    redis.call('XDEL', orders, unpack(entries))
    redis.call('XGROUP', 'DELCONSUMER', orders, group, id)
  end
end
