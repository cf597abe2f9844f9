-- move_clear: prepares the server that a shard moves to: makes a fence the fence of the shard there, and deletes keys
-- that an earlier move left. Or it ends a move that is abandoned: it deletes the keys and then the guard, because a
-- server that starts with a key of a slot of another node imports the slot again.
--
-- Replay-safe: a call that is executed late, when the keys are copied or the data is in use, deletes nothing.
--
-- KEYS 1 guard  hash  fence, rebuilding, deployment, former_owner; swapped: the preparation has ended
--      then keys to delete
-- ARGV 1 fence   2 id of the deployment
--      3 "clear" to prepare, "copy" to end that, "abandon" to delete the copy, or "withdraw" to delete the guard
-- Returns "ok"; or "fenced" if a rebuild or a move with a later fence has begun on this server, if the shard was
--      released, or if the step comes too late, and nothing changed.

local guard, fence, step = KEYS[1], ARGV[1], ARGV[3]

local mark = redis.call('HMGET', guard, 'fence', 'rebuilding', 'swapped')
local newest = tonumber(mark[1] or '') or 0
local own = newest == tonumber(fence) and mark[2] == fence
if newest >= tonumber(fence) and not own or step == 'clear' and mark[3] == fence or step == 'copy' and not own then
  return 'fenced'
end

if step == 'withdraw' then
  redis.call('UNLINK', guard)
  return 'ok'
elseif step == 'copy' then
  redis.call('HSET', guard, 'swapped', fence)
  return 'ok'
end
redis.call('HSET', guard, 'fence', fence, 'rebuilding', fence, 'deployment', ARGV[2])
redis.call('HDEL', guard, 'run_id', 'generation', 'swapped', 'former_owner')
for i = 2, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
return 'ok'
