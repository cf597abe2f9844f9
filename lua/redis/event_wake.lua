-- event_wake: wakes the relay of events, unless it has a token already.
--
-- KEYS 1 wake  list  at most one token
-- ARGV none
-- Returns 1.

local wake = KEYS[1]

if redis.call('LLEN', wake) == 0 then
  redis.call('LPUSH', wake, '1')
end
return 1
