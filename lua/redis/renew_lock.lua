-- renew_lock: keep a lock for longer, or let it go, unless somebody else has it. One that has run out and that nobody has taken
-- is its last owner's again.
--
-- KEYS 1 lock  string  its owner's token
-- ARGV 1 token   2 how much longer, ms; 0 lets it go
-- Answers 1, or 0: somebody else has it.

local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
  return 0
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif owner then
  redis.call('DEL', KEYS[1])
end
return 1
