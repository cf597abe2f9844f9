-- event_trim: make sure that every group is there, find out what all of them are done with, and drop of that what the caller allows.
--
-- KEYS 1 stream
-- ARGV 1 last position that may be dropped   2 entries that are kept while there is no group
--      3... name, start: the groups that must be there; a missing one begins behind its start
-- Answers {position up to which every group has acknowledged everything, entries, the missing groups...}. The newest entry stays: it says where
-- the stream ends.

local stream, allowed, keep = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

local function number(id)
  return tonumber(string.match(id, '^%d+'))
end

-- The groups that are there: what each has been given last.
local given, missing = {}, {}
local function look()
  given = {}
  if redis.call('EXISTS', stream) == 0 then
    return
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local fields = {}
    for i = 1, #group, 2 do
      fields[group[i]] = group[i + 1]
    end
    given[fields['name']] = number(fields['last-delivered-id'])
  end
end

look()
for i = 3, #ARGV, 2 do
  if not given[ARGV[i]] then
    redis.call('XGROUP', 'CREATE', stream, ARGV[i], ARGV[i + 1] .. '-0', 'MKSTREAM')
    missing[#missing + 1] = ARGV[i]
  end
end
if #missing > 0 then
  look()
end

local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
local last = newest and number(newest[1]) or 0
local done = nil
for name, position in pairs(given) do
  local pending = redis.call('XPENDING', stream, name)
  if tonumber(pending[1]) > 0 then
    position = number(pending[2]) - 1
  end
  if not done or position < done then
    done = position
  end
end
if not done then
  done = math.max(last - keep, 0)
end
local upto = math.min(allowed, done, last - 1)
if upto > 0 then
  redis.call('XTRIM', stream, 'MINID', string.format('%.0f-0', upto + 1))
end
local answer = { done, redis.call('XLEN', stream) }
for _, name in ipairs(missing) do
  answer[#answer + 1] = name
end
return answer
