-- renew_lock: extends or releases a lock, unless another owner holds it. Its last owner can renew an expired lock.
--
-- A lock that expires later than its duration from now was set before the clock was set back, or by a server with
-- another clock. It is shortened, because its owner may have crashed.
--
-- KEYS 1 lock  string  token of its owner
-- ARGV 1 token; it ends in "-" and the duration of the lock, ms   2 duration from now, ms; 0 releases the lock
-- Returns 1; or 0 if another owner holds the lock.

local lock = KEYS[1]

local owner = redis.call('GET', lock)
if owner and owner ~= ARGV[1] then
  local duration = tonumber(string.match(owner, '%-(%d+)$') or '')
  if duration and redis.call('PTTL', lock) > duration then
    redis.call('PEXPIRE', lock, duration)
  end
  return 0
end
if ARGV[2] ~= '0' then
  redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
elseif owner then
  redis.call('DEL', lock)
end
return 1
