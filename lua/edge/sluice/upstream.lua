-- Response times and failures of backends, for the metrics. It runs in the log phase.

local add = require("sluice.count").add
local get_variable = require("sluice.accel").select("variables", "sluice.variables").get
local gmatch = string.gmatch
local ipairs, tonumber = ipairs, tonumber

-- The upper bounds of the histogram's buckets in seconds, as in the Go gateway.
local BOUNDS = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 }

-- Names of counters by backend, host:port or unix:/path. The table stays small: the configuration names all backends.
local names = {}

local _M = { BOUNDS = BOUNDS }

local function names_of(backend)
  local of = names[backend]
  if not of then
    of = { sum = "upstream_ms/" .. backend }
    for _, failure in ipairs { "dial", "timeout", "broken" } do
      of[failure] = ("failure/%s/%s"):format(failure, backend)
    end
    for i = 1, #BOUNDS + 1 do
      of[i] = ("upstream/%d/%s"):format(i, backend)
    end
    names[backend] = of
  end
  return of
end

-- answered(backend, seconds): counts a try that was answered
local function answered(backend, seconds)
  local of, i = names_of(backend), 1
  while i <= #BOUNDS and seconds > BOUNDS[i] do
    i = i + 1
  end
  add(of[i])
  add(of.sum, seconds * 1000)
end

-- unanswered(backend, status, connected): counts a try without an answer
local function unanswered(backend, status, connected)
  if status == "504" or status == "502" then -- not 499: the client has left
    local of = names_of(backend)
    add(connected == "-" and of.dial or status == "504" and of.timeout or of.broken)
  end
end

-- note(): counts the tries of a request that was passed to a backend
function _M.note()
  local backends = get_variable("upstream_addr")
  if not backends or backends == "" then
    return
  end
  -- Times are in seconds, as nginx writes them: "-" without one. Several tries are separated by commas.
  local began = get_variable("upstream_header_time")
  local seconds = tonumber(began)
  if seconds then
    return answered(backends, seconds)
  end
  local each = "[^, ]+"
  local next_began = gmatch(began, each)
  local next_status = gmatch(get_variable("upstream_status"), each)
  local next_connected = gmatch(get_variable("upstream_connect_time"), each)
  for backend in gmatch(backends, each) do
    local status, connected, time = next_status(), next_connected(), next_began()
    seconds = tonumber(time)
    if seconds then
      answered(backend, seconds)
    else
      unanswered(backend, status, connected)
    end
  end
end

return _M
