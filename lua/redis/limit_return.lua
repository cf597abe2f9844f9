-- limit_return: returns leased slots that were not spent (ADR 47). A lane that was leased again meanwhile, and a return
-- that is repeated, change nothing.
--
-- KEYS 1 lanes  hash  see limit_lease
-- ARGV for each lane: 1 its number   2 first slot that was not spent   3 first slot after the lease   4 id of the lease
-- Returns the number of lanes with returned slots.

local writes = {}
for i = 1, #ARGV, 4 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 2] .. ' ' .. ARGV[i + 3] then
    writes[#writes + 1] = ARGV[i]
    writes[#writes + 1] = ARGV[i + 1] .. ' -'
  end
end
if #writes > 0 then
  redis.call('HSET', KEYS[1], unpack(writes))
end
return #writes / 2
