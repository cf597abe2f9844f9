-- rebuild_begin: holds a shard for the rebuild with this fence. Its queue stops, and new connections are not trusted.
--
-- KEYS 1 guard       hash  fence, rebuilding, run_id
--      2 unfinished  list  the queue that an interrupted rebuild left
-- ARGV 1 fence   2 run_id with which the shard must have been verified; empty: any
-- Returns "ok"; "fenced" if a later rebuild has begun; or "unverified". Only "ok" changes anything.

local guard, unfinished = KEYS[1], KEYS[2]
local fence = ARGV[1]

if (tonumber(redis.call('HGET', guard, 'fence') or '') or 0) > tonumber(fence) then
  return 'fenced'
end
if ARGV[2] ~= '' and redis.call('HGET', guard, 'run_id') ~= ARGV[2] then
  return 'unverified'
end

redis.call('HSET', guard, 'fence', fence, 'rebuilding', fence)
redis.call('HDEL', guard, 'run_id')
redis.call('UNLINK', unfinished)
return 'ok'
