-- event_claim: give a consumer events that another one has had for too long. Each is one delivery more.
--
-- Events that were given out once come several at a time. One that has been given out twice or more comes alone: if it kills its consumer, it takes
-- no innocent ones along.
--
-- KEYS 1 stream
-- ARGV 1 group   2 consumer   3 how long is too long, ms   4 how many events at most
-- Answers a list of {id, deliveries, body or ''}; empty when there is nothing.

local stream, group, consumer, idle, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local pending = redis.call('XPENDING', stream, group, 'IDLE', idle, '-', '+', limit)
local chosen, gone = {}, {}
for _, entry in ipairs(pending) do
  local alone = entry[4] >= 2
  if alone and #chosen > 0 then
    break
  end
  local found = redis.call('XRANGE', stream, entry[1], entry[1])[1]
  if found then
    local body = ''
    for f = 1, #found[2], 2 do
      if found[2][f] == 'event' then
        body = found[2][f + 1]
      end
    end
    chosen[#chosen + 1] = { entry[1], entry[4] + 1, body }
    if alone then
      break
    end
  else
    gone[#gone + 1] = entry[1] -- somebody has deleted it from the stream
  end
end
for _, event in ipairs(chosen) do
  redis.call('XCLAIM', stream, group, consumer, 0, event[1], 'RETRYCOUNT', event[2], 'JUSTID')
end
for _, id in ipairs(gone) do
  redis.call('XACK', stream, group, id)
end
return chosen
