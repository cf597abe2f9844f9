-- event_extend_claim: say for how long a consumer has had events, if they are still its own. No delivery is counted.
--
-- 0 keeps them for as long as a new delivery would; as much as others wait for before they claim lets them go.
--
-- KEYS 1 stream
-- ARGV 1 group   2 consumer   3... id, ms
-- Answers how many of them are the consumer's.

local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]

local own = {}
for i = 3, #ARGV, 2 do
  local entry = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1, consumer)[1]
  if entry then
    own[#own + 1] = { ARGV[i], ARGV[i + 1], entry[4] }
  end
end
for _, event in ipairs(own) do
  redis.call('XCLAIM', stream, group, consumer, 0, event[1], 'IDLE', event[2], 'RETRYCOUNT', event[3], 'JUSTID')
end
return #own
