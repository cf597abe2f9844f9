-- Counters of all workers. Each worker counts for itself, which costs next to nothing, and adds its counts to the zone
-- `sluice_counters` every second; there they outlive workers and reloads.

local pairs = pairs

local EVERY = 1 -- s

local counts = {}

local _M = {}

-- add(name, n): n more, or one
function _M.add(name, n)
  counts[name] = (counts[name] or 0) + (n or 1)
end

-- flush(zone): hands over what has been counted since
function _M.flush(zone)
  for name, n in pairs(counts) do
    if n > 0 and zone:incr(name, n, 0) then
      counts[name] = 0
    end
  end
end

-- start(zone): call from init_worker_by_lua. The timer runs for the last time when the worker is told to end; what it
-- counts while it serves the requests that it still has is for a flush at its end.
function _M.start(zone)
  ngx.timer.every(EVERY, function()
    _M.flush(zone)
  end)
end

return _M
