-- event_remove_consumers: remove the consumers of a group that have nothing pending and were last heard of long ago.
--
-- KEYS 1 stream
-- ARGV 1 group   2 how long is long, ms   3 a consumer that leaves now, if it has nothing pending; may be ''
-- Answers how many were removed.

local stream, group, long, leaving = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local gone = {}
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local fields = {}
  for i = 1, #consumer, 2 do
    fields[consumer[i]] = consumer[i + 1]
  end
  if fields['pending'] == 0 and (fields['name'] == leaving or fields['idle'] > long) then
    gone[#gone + 1] = fields['name']
  end
end
for _, name in ipairs(gone) do
  redis.call('XGROUP', 'DELCONSUMER', stream, group, name)
end
return #gone
