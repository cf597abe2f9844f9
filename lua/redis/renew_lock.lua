-- renew_lock: extends or releases a lock, unless another owner holds it. Its last owner can renew an expired lock.
--
-- KEYS 1 lock  string  token of its owner
-- ARGV 1 token   2 duration from now, ms; 0 releases the lock
-- Returns 1; or 0 if another owner holds the lock.

local lock = KEYS[1]

local owner = redis.call('GET', lock)
if owner and owner ~= ARGV[1] then
  return 0
end
if ARGV[2] ~= '0' then
  redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
elseif owner then
  redis.call('DEL', lock)
end
return 1
