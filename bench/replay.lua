-- replay: a wrk script that sends prepared requests, each at most once per run.
--
-- The first argument is a file: for each request a line with its length, then its bytes. With a second argument,
-- "stream", requests are read when they are sent; otherwise all are read at the start. The last line of output is
--   replay: <answers> <microseconds> <status 400 or more> <broken> <p50 us> <p99 us> <1: the requests did not last>

-- luacheck: globals wrk init request setup done exhausted

local threads, requests, sent, stream = {}, {}, 0, nil

function setup(thread)
  threads[#threads + 1] = thread
end

local function read(file)
  local length = file:read("*l")
  return length and file:read(tonumber(length))
end

function init(args)
  local file = assert(io.open(args[1], "rb"))
  exhausted = 0
  if args[2] == "stream" then
    file:setvbuf("full", 1024 * 1024)
    stream = file
    return
  end
  for text in function() return read(file) end do
    requests[#requests + 1] = text
  end
  file:close()
end

-- streamed returns the next request of the file, and the first one again after the last.
local function streamed()
  local text = read(stream)
  if not text then
    exhausted = 1
    stream:seek("set")
    text = read(stream)
  end
  return text
end

function request()
  if stream then
    return streamed()
  end
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
