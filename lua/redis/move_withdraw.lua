-- move_withdraw: ends the import of a slot by a move that has not changed its owner and has released its lock.
-- Replay-safe.
--
-- KEYS 1 lock  string  exists while a process moves the slot to this server
-- ARGV 1 slot   2 id of the node that the move imports from
-- Returns 1; or 0 if another process holds the lock, and nothing changed.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
local mark = '[' .. ARGV[1] .. '-<-' .. ARGV[2] .. ']'
if string.find(redis.call('CLUSTER', 'NODES'), mark, 1, true) then
  redis.call('CLUSTER', 'SETSLOT', ARGV[1], 'STABLE')
end
return 1
