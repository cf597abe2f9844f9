-- move_slot: changes the owner of the slot of a shard that is held for a move, or announces the change. The fence is
-- checked in the same step, so a process that was suspended cannot move a shard that has been rebuilt since.
--
-- KEYS 1 guard  hash  fence, rebuilding, deployment
-- ARGV 1 fence   2 slot   3 "MIGRATING" or "NODE"   4 id of the node   5 id of the deployment
-- Returns "ok"; "fenced" if the shard is not held with this fence or by another deployment; or "stable" if this node,
--      which would become the owner, does not import the slot: its claim would not be newer than that of the old
--      owner. Only "ok" changes anything.

local guard = KEYS[1]

local mark = redis.call('HMGET', guard, 'fence', 'rebuilding', 'deployment')
if mark[1] ~= ARGV[1] or mark[2] ~= ARGV[1] or (mark[3] or '0') ~= ARGV[5] then
  return 'fenced'
end
if ARGV[3] == 'NODE' and not string.find(redis.call('CLUSTER', 'NODES'), '[' .. ARGV[2] .. '-<-', 1, true) then
  return 'stable'
end
redis.call('CLUSTER', 'SETSLOT', unpack(ARGV, 2, 4))
return 'ok'
