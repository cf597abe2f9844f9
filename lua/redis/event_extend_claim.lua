-- event_extend_claim: sets the idle time of events that still belong to the consumer. It counts no delivery.
--
-- With an idle time of 0, the consumer keeps an event for as long as after a new delivery. With the idle time from
-- which other consumers claim, it releases the event.
--
-- KEYS 1 stream  stream  events
-- ARGV 1 group   2 consumer
--      then three per event: id, idle time in ms, new number of deliveries or '' for the present one
-- Returns how many of the events belong to the consumer.

local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]

local own = {}
for i = 3, #ARGV, 3 do
  local entry = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1, consumer)[1]
  if entry then
    own[#own + 1] = { ARGV[i], ARGV[i + 1], ARGV[i + 2] ~= '' and ARGV[i + 2] or entry[4] }
  end
end

for _, event in ipairs(own) do
  redis.call('XCLAIM', stream, group, consumer, 0, event[1], 'IDLE', event[2], 'RETRYCOUNT', event[3], 'JUSTID')
end
return #own
