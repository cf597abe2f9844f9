-- lease_entries: leases entries of the stream. The script includes stream before it.

-- lease_entries returns the messages of up to n entries that were never leased, and whether entries remain. Call it
-- after the last check: it cannot fail.
local function lease_entries(batch, orders, id, n)
  -- The batch does not exist. DEL comes first because Redis with full memory refuses the first write of a script
  -- only, and never DEL.
  redis.call('DEL', batch)
  local reply = redis.pcall('XREADGROUP', 'GROUP', group, id, 'COUNT', n, 'STREAMS', orders, '>')
  if reply and reply.err then -- the group does not exist before the first take
    redis.call('XGROUP', 'CREATE', orders, group, '0')
    reply = redis.call('XREADGROUP', 'GROUP', group, id, 'COUNT', n, 'STREAMS', orders, '>')
  end
  if not reply or #reply == 0 then
    redis.call('XGROUP', 'DELCONSUMER', orders, group, id) -- XREADGROUP creates the consumer even without entries
    return {}, false
  end
  local entries, messages = reply[1][2], {}
  for i = 1, #entries do
    messages[i] = entry_text(entries[i])
  end
  local newest = redis.call('XREVRANGE', orders, '+', '-', 'COUNT', 1)
  return messages, newest[1][1] ~= entries[#entries][1]
end
