-- event_append: adds events to the end of the stream, unless another relay has added events since or the stream is
-- full.
--
-- The id of an event is its position in SQL. A repeated call, or one from a relay that was suspended, finds another
-- end than its caller expects and adds nothing.
--
-- KEYS 1 stream  stream  events
-- ARGV 1 position at which the caller expects the stream to end, 0 if it is empty; -1 to read only
--      2 largest number of entries in the stream
--      then two per event: position, body; positions ascend
-- Returns {position of the last entry ever added, entries}. The stream holds the caller's events up to that position.

local stream = KEYS[1]
local expected, bound = tonumber(ARGV[1]), tonumber(ARGV[2])

local last = 0
if redis.call('EXISTS', stream) == 1 then
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = tonumber(string.match(info[i + 1], '^%d+') or '0')
    end
  end
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if newest then
    last = math.max(last, tonumber(string.match(newest[1], '^%d+')))
  end
end
local entries = redis.call('XLEN', stream)
if last ~= expected then
  return { last, entries }
end

local i = 3
while i < #ARGV and entries < bound do
  redis.call('XADD', stream, ARGV[i] .. '-0', 'event', ARGV[i + 1])
  last, entries = tonumber(ARGV[i]), entries + 1
  i = i + 2
end
return { last, entries }
