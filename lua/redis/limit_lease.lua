-- limit_lease: leases slots of one limit that all edges share (ADR 47). Slot k of a rule is at the instant
-- k * interval; slots of one lane have the same k modulo the number of lanes. Each slot is leased once.
--
-- KEYS 1 lanes  hash     lane -> "first slot that is not leased, id of the lease before it"
--      2 start  hash     run: run_id of the server that wrote it; since: its time then, us; latest: of its last lease
-- ARGV 1 interval, us   2 window, us: a slot may be spent from its instant less this   3 ahead, us: no lease reaches
--      beyond now + window + ahead   4 lanes of the rule   5 lanes wanted   6 slots wanted of each lane
--      7 skip, us, from 0, less than window: no leased slot is before now + skip   8 id of the lease
-- Returns now, us; microseconds until a further slot can be leased, from 0; 1 if it is refused because slots may have
-- been leased before this server started or its clock was set back, else 0; then for each leased lane: its number, its
-- first slot, slots.

local interval, window, ahead = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local count, wanted, each, id = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[8]
local skip = tonumber(ARGV[7])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local start = redis.call('HMGET', KEYS[2], 'run', 'since', 'latest')
local since = start[1] == run and tonumber(start[2])
local is_new = not since or math.max(since, tonumber(start[3] or '') or 0) > now -- else the clock was set back
if is_new then
  since = now
end
local stored = {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  stored[tonumber(fields[i])] = tonumber(string.match(fields[i + 1], '^%d+'))
end

-- Slots before `least` have passed when the edge receives the reply, or may have been leased before `since`. A lane
-- with leased slots after `most` was written before the clock was set back; those slots end before `least`.
local least = math.ceil(math.max(now + skip, since + window + ahead) / interval)
local most = math.floor((now + window + ahead) / interval) + count
local lanes = {}
for lane = 0, count - 1 do
  local first = least + (lane - least) % count
  local next = stored[lane] or 0
  if next > most + (lane - most) % count then
    next = 0
  end
  lanes[#lanes + 1] = { lane = lane, next = math.max(next, first) }
end
table.sort(lanes, function(a, b) return a.next < b.next end)

-- The slots of all lanes of a lease end together, so that the edge renews them together.
local till = math.min(lanes[1].next + each * count, math.floor((now + window + ahead) / interval))
local answer, writes = { now, 0, 0 }, {}
for i = 1, wanted do
  local l = lanes[i]
  if not l or l.next * interval - window > now then
    break
  end
  local n = math.max(1, math.ceil((till - l.next) / count))
  answer[#answer + 1] = l.lane
  answer[#answer + 1] = ('%.0f'):format(l.next)
  answer[#answer + 1] = n
  l.next = l.next + n * count
  writes[#writes + 1] = l.lane
  writes[#writes + 1] = ('%.0f %s'):format(l.next, id)
end
local further, last = math.huge, 0
for _, l in ipairs(lanes) do
  further, last = math.min(further, l.next), math.max(last, l.next)
end
answer[2] = math.max(0, math.ceil(further * interval - window - now))
if #writes == 0 and now < since + ahead then
  answer[3] = 1
end

if is_new then
  redis.call('HSET', KEYS[2], 'run', run, 'since', ('%.0f'):format(since), 'latest', ('%.0f'):format(now))
end
if #writes > 0 then
  redis.call('HSET', KEYS[2], 'latest', ('%.0f'):format(now))
  redis.call('HSET', KEYS[1], unpack(writes))
  redis.call('PEXPIRE', KEYS[1], math.ceil((last * interval - now) / 1000) + 1000)
end
return answer
