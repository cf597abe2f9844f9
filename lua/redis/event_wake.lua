-- event_wake: wake the relay of events, unless it is about to wake anyway.
--
-- KEYS 1 wake  list  at most one token
-- Answers 1.

if redis.call('LLEN', KEYS[1]) == 0 then
  redis.call('LPUSH', KEYS[1], '1')
end
return 1
