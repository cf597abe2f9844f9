-- move_finish: makes this node the owner of a slot, to finish a move that was interrupted. The lock is checked in the
-- same step, so a process that was suspended past it cannot take the slot of a shard that has moved on since.
--
-- KEYS 1 lock  string  token of its owner
-- ARGV 1 token   2 slot   3 id of this node
-- Returns "ok"; or "fenced" if the process does not hold the lock any longer, and nothing changed.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'fenced'
end
redis.call('CLUSTER', 'SETSLOT', ARGV[2], 'NODE', ARGV[3])
return 'ok'
