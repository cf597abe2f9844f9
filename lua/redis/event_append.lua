-- event_append: put events at the end of the stream, unless somebody else has put something there meanwhile or the stream is full.
--
-- An event's id is its position in SQL. A call that is repeated, or made by a relay that slept, finds that the stream ends elsewhere than its
-- caller thought, and does nothing.
--
-- KEYS 1 stream
-- ARGV 1 where the stream ends, as the caller thinks: a position, 0 when it is empty; -1 only asks
--      2 most entries that the stream may have
--      3... position, body; positions ascending
-- Answers {position of the last entry ever, entries}; the caller's events up to that position are in.

local stream = KEYS[1]
local ends, bound = tonumber(ARGV[1]), tonumber(ARGV[2])

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
if last ~= ends then
  return { last, entries }
end
local i = 3
while i < #ARGV and entries < bound do
  redis.call('XADD', stream, ARGV[i] .. '-0', 'event', ARGV[i + 1])
  last, entries = tonumber(ARGV[i]), entries + 1
  i = i + 2
end
return { last, entries }
