-- rebuild_begin: hold a shard for the rebuild that has this fence. Its queue stands still from here on, and no new connection is trusted.
--
-- KEYS 1 guard  hash  fence, rebuilding, run_id
--      2 ready  list  what an earlier rebuild has left unfinished
-- ARGV 1 fence   2 run_id that the shard must have been verified with; empty: none
-- Answers "ok", "fenced": a later rebuild has begun, or "unverified": the shard's data was not. With the last two nothing has changed.

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
