-- requeue: the front of the queue, which is the right end of ready.

-- push_front puts messages before all others. messages is ordered oldest first and is not empty.
local function push_front(ready, messages)
  local n, front = #messages, {}
  for i = 1, n do
    front[i] = messages[n + 1 - i]
  end
  redis.call('RPUSH', ready, unpack(front))
end
