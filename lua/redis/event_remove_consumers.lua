-- event_remove_consumers: removes consumers of a group that have no pending events and are idle for long, or stop now.
--
-- KEYS 1 stream  stream  events
-- ARGV 1 group   2 idle time from which a consumer is removed, ms   3 consumer that stops now, or ''
-- Returns how many consumers were removed.

local stream, group, max_idle, stopping = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local gone = {}
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local fields = {}
  for i = 1, #consumer, 2 do
    fields[consumer[i]] = consumer[i + 1]
  end
  if fields['pending'] == 0 and (fields['name'] == stopping or fields['idle'] > max_idle) then
    gone[#gone + 1] = fields['name']
  end
end

for _, name in ipairs(gone) do
  redis.call('XGROUP', 'DELCONSUMER', stream, group, name)
end
return #gone
