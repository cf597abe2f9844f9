-- event_trim: creates missing consumer groups, and deletes events that every group has acknowledged, as far as the
-- caller permits. The newest entry stays, because it marks the end of the stream.
--
-- KEYS 1 stream  stream  events
-- ARGV 1 last position that may be deleted   2 number of entries to keep while there is no group
--      then two per group: name, start; a missing group begins after its start
-- Returns {position up to which every group has acknowledged every event, entries, number of groups, the groups
--      created...}.

local stream, allowed, keep = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

-- position returns the position of an entry id.
local function position(id)
  return tonumber(string.match(id, '^%d+'))
end

local acknowledged = {} -- group -> position up to which it has acknowledged every event
local exists = redis.call('EXISTS', stream) == 1
for _, group in ipairs(exists and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local fields = {}
  for i = 1, #group, 2 do
    fields[group[i]] = group[i + 1]
  end
  local pending = redis.call('XPENDING', stream, fields['name'])
  if tonumber(pending[1]) > 0 then
    acknowledged[fields['name']] = position(pending[2]) - 1
  else
    acknowledged[fields['name']] = position(fields['last-delivered-id'])
  end
end
local missing = {}
for i = 3, #ARGV, 2 do
  if not acknowledged[ARGV[i]] then
    acknowledged[ARGV[i]] = tonumber(ARGV[i + 1])
    missing[#missing + 1] = { name = ARGV[i], start = ARGV[i + 1] .. '-0' }
  end
end
local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
local last = newest and position(newest[1]) or 0
local entries = redis.call('XLEN', stream)
local done, groups = nil, 0
for _, at in pairs(acknowledged) do
  done, groups = math.min(done or at, at), groups + 1
end
done = done or math.max(last - keep, 0)

for _, group in ipairs(missing) do
  redis.call('XGROUP', 'CREATE', stream, group.name, group.start, 'MKSTREAM')
end
local upto = math.min(allowed, done, last - 1)
if upto > 0 then
  entries = entries - redis.call('XTRIM', stream, 'MINID', string.format('%.0f-0', upto + 1))
end
local answer = { done, entries, groups }
for _, group in ipairs(missing) do
  answer[#answer + 1] = group.name
end
return answer
