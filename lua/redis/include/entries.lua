-- entries: the part of a batch that came through the stream. Scripts include this by its name; it is none itself.
--
-- The stream has one group, and the batch is its consumer: what is pending for the consumer is what the batch holds. Entries leave the stream with
-- their batch and in no other way. A script declares batch and orders among its KEYS.

local group = 'orders'

-- text_of is the message of an entry. An entry that somebody else has added is kept as a JSON array of its fields and values, which no message is.
local function text_of(entry)
  local fields = entry[2]
  if #fields == 2 and fields[1] == 'm' then
    return fields[2]
  end
  return cjson.encode(fields)
end

-- pending answers the ids of the entries that a batch holds, oldest first. After the clock was set back they are idle for less than no time, and the
-- embedded Redis would leave them out, if it were not told that a hundred years less than none will do.
local function pending(orders, id)
  local ids = {}
  if redis.call('XLEN', orders) == 0 then
    return ids
  end
  local entries = redis.pcall('XPENDING', orders, group, 'IDLE', '-3000000000000', '-', '+', 1000, id)
  if entries.err then -- nobody has taken from it yet, and there is no group
    return ids
  end
  for i = 1, #entries do
    ids[i] = entries[i][1]
  end
  return ids
end

-- held answers all messages of a batch; ids are those of its entries.
local function held(batch, orders, ids)
  local messages = redis.call('LRANGE', batch, 0, -1)
  if #ids == 0 then
    return messages
  end
  local own = {}
  for i = 1, #ids do
    own[ids[i]] = true
  end
  for _, entry in ipairs(redis.call('XRANGE', orders, ids[1], ids[#ids])) do
    if own[entry[1]] then
      messages[#messages + 1] = text_of(entry)
    end
  end
  return messages
end

-- drop ends a batch: its messages are gone, or elsewhere by the same script. What is pending for a consumer ends with it: no XACK.
local function drop(batch, orders, id, ids)
  redis.call('DEL', batch)
  if #ids > 0 then
    redis.call('XDEL', orders, unpack(ids))
    redis.call('XGROUP', 'DELCONSUMER', orders, group, id)
  end
end
