-- Counters of all workers. Each worker counts in a table and adds its counts to the shared dict `sluice_counters` every
-- second; there they outlive workers and reloads.

local pairs = pairs

local EVERY = 1 -- s

local counts = {}

local _M = {}

-- add(name, n): counts n more, by default one
function _M.add(name, n)
  counts[name] = (counts[name] or 0) + (n or 1)
end

-- flush(zone): adds the counts since the last flush to the shared dict
function _M.flush(zone)
  for name, n in pairs(counts) do
    if n > 0 and zone:incr(name, n, 0) then
      counts[name] = 0
    end
  end
end

-- start(zone): call it in init_worker_by_lua. The timer stops when the worker shuts down; exit_worker_by_lua flushes
-- the counts of its last requests.
function _M.start(zone)
  ngx.timer.every(EVERY, function()
    _M.flush(zone)
  end)
end

return _M
