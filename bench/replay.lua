-- replay: a wrk script that sends prepared requests, each at most once per run.
--
-- The one argument is a file: for each request a line with its length, then its bytes. The last line of output is
--   replay: <answers> <microseconds> <status 400 or more> <broken> <p50 us> <p99 us> <1: the requests did not last>

-- luacheck: globals wrk init request setup done exhausted

local threads, requests, sent = {}, {}, 0

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  local file = assert(io.open(args[1], "rb"))
  for length in function() return file:read("*l") end do
    requests[#requests + 1] = file:read(tonumber(length))
  end
  file:close()
  exhausted = 0
end

function request()
  sent = sent + 1
  if sent > #requests then
    sent, exhausted = 1, 1
  end
  return requests[sent]
end

function done(summary, latency)
  local e, short = summary.errors, 0
  for _, thread in ipairs(threads) do
    short = short + thread:get("exhausted")
  end
  io.write(string.format("replay: %d %d %d %d %f %f %d\n", summary.requests, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99), math.min(short, 1)))
end
