-- move_clear: prepares the server that a shard moves to. It makes a fence the fence of the shard there, and deletes
-- keys that an earlier move left. Or it ends a move that is withdrawn: it deletes the guard, because a server that
-- starts with a key of a slot of another node imports the slot again.
--
-- KEYS 1 guard  hash  fence, rebuilding, deployment, former_owner
--      then keys to delete
-- ARGV 1 fence   2 id of the deployment   3 "withdraw", or nothing
-- Returns "ok"; or "fenced" if a rebuild or a move with a later fence has begun on this server, and nothing changed.

local guard = KEYS[1]

if (tonumber(redis.call('HGET', guard, 'fence') or '') or 0) > tonumber(ARGV[1]) then
  return 'fenced'
end

if ARGV[3] == 'withdraw' then
  redis.call('UNLINK', guard)
  return 'ok'
end
redis.call('HSET', guard, 'fence', ARGV[1], 'rebuilding', ARGV[1], 'deployment', ARGV[2])
redis.call('HDEL', guard, 'run_id', 'generation', 'swapped', 'former_owner')
for i = 2, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
return 'ok'
