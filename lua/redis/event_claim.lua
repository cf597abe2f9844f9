-- event_claim: moves events that other consumers have not renewed for the idle time to this consumer. Each move counts
-- as a delivery.
--
-- Events that were delivered once are claimed together. An event that was delivered twice or more is claimed alone:
-- if it crashes its consumer, no other event is affected.
--
-- After the clock was set back, Redis reports an idle time of 0 for earlier events until the clock has caught up. The
-- script restarts it.
--
-- KEYS 1 stream  stream  events
-- ARGV 1 group   2 consumer   3 idle time from which an event is claimed, ms   4 largest number of events
-- Returns a list of {id, deliveries, body or ''}.

local stream, group, consumer, idle, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local pending = redis.call('XPENDING', stream, group, 'IDLE', idle, '-', '+', limit)
local early = {} -- with a negative idle time, see include/stream
if #pending == 0 then
  early = redis.call('XPENDING', stream, group, 'IDLE', '-3000000000000', '-', '+', 1000)
end
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
    gone[#gone + 1] = entry[1] -- deleted from the stream by hand
  end
end

for _, event in ipairs(chosen) do
  redis.call('XCLAIM', stream, group, consumer, 0, event[1], 'RETRYCOUNT', event[2], 'JUSTID')
end
for _, entry in ipairs(early) do
  if entry[3] <= 0 then
    redis.call('XCLAIM', stream, group, entry[2], 0, entry[1], 'IDLE', 0, 'RETRYCOUNT', entry[4], 'JUSTID')
  end
end
for _, id in ipairs(gone) do
  redis.call('XACK', stream, group, id)
end
return chosen
