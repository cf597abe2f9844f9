-- requeue: the front of the queue, which is the right end of ready.

-- push_front puts messages before all others. messages is ordered oldest first and is not empty.
local function push_front(ready, messages)
  local n, front = #messages, {}
  for i = 1, n do
    front[i] = messages[n + 1 - i]
  end
  redis.call('RPUSH', ready, unpack(front))
end

-- requeue puts messages, which may be empty, before all others and wakes a worker. token is the length of wake.
local function requeue(ready, wake, token, messages)
  if #messages == 0 then
    return
  end
  push_front(ready, messages)
  if token == 0 then
    redis.call('LPUSH', wake, '1')
  end
end
