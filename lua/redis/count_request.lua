-- count_request: counts a request in a fixed window, which begins with its first request.
--
-- KEYS 1 count  string  requests in the window; expires at its end
-- ARGV 1 duration of the window, ms
-- Returns the number of requests in the window, with this one, and the ms until its end. Each run counts a request.

local count = KEYS[1]

local n = redis.call('INCR', count)
local left = redis.call('PTTL', count)
if left < 0 then
  left = tonumber(ARGV[1])
  redis.call('PEXPIRE', count, left)
end
return { n, left }
