-- deliver: lease entries that nobody has taken. A part of take, after entries.

-- deliver answers the messages of the next n entries, fewer when there are not so many, and whether there are more. It is called after the last
-- check: nothing in it fails.
local function deliver(batch, orders, id, n)
  redis.call('DEL', batch) -- there is none. A full memory refuses the first write, were it the making of a group, and no other after one
  local reply = redis.pcall('XREADGROUP', 'GROUP', group, id, 'COUNT', n, 'STREAMS', orders, '>')
  if reply and reply.err then -- there is no group: nobody has taken before
    redis.call('XGROUP', 'CREATE', orders, group, '0')
    reply = redis.call('XREADGROUP', 'GROUP', group, id, 'COUNT', n, 'STREAMS', orders, '>')
  end
  if not reply or #reply == 0 then
    redis.call('XGROUP', 'DELCONSUMER', orders, group, id) -- Redis makes one even for nothing
    return {}, false
  end
  local entries, messages = reply[1][2], {}
  for i = 1, #entries do
    messages[i] = text_of(entries[i])
  end
  local newest = redis.call('XREVRANGE', orders, '+', '-', 'COUNT', 1)
  return messages, newest[1][1] ~= entries[#entries][1]
end
