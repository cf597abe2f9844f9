-- renew: keep a lock for longer, or let it go, if it is still held by this owner.
--
-- KEYS 1 lock  string  its owner's token
-- ARGV 1 token   2 how much longer, ms; 0 lets it go
-- Answers 1, or 0: somebody else has it, or nobody.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
