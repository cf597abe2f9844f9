-- One clock for every worker: CLOCK_MONOTONIC in whole microseconds. It never goes backwards, unlike ngx.now(), which is the wall
-- clock as each worker last cached it and may differ between workers by a whole turn of the event loop.

local ffi = require "ffi"

local C = ffi.C
local tonumber = tonumber
local floor = math.floor

-- The name after __asm__ is libc's; ours is private, so that no other module's declaration of the same function can clash.
ffi.cdef [[
int sluice_clock_gettime(int clock, long *timespec) __asm__("clock_gettime");
]]

local CLOCK_REALTIME = 0
local CLOCK_MONOTONIC = 1 -- Linux

local timespec = ffi.new("long[2]") -- seconds, nanoseconds

local _M = {}

-- now() -> microseconds since boot, a whole number below 2^53
function _M.now()
  C.sluice_clock_gettime(CLOCK_MONOTONIC, timespec)
  return tonumber(timespec[0]) * 1000000 + floor(tonumber(timespec[1]) / 1000)
end

-- deadline(us, out): writes the wall-clock instant `us` microseconds from now into out, a long[2], as libc's timed waits want it
function _M.deadline(us, out)
  C.sluice_clock_gettime(CLOCK_REALTIME, out)
  local ns = tonumber(out[1]) + us * 1000
  out[0] = out[0] + floor(ns / 1000000000)
  out[1] = ns % 1000000000
end

return _M
