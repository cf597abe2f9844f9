-- One clock for all workers: CLOCK_BOOTTIME in whole microseconds, a monotonic clock that counts the time for which the
-- machine is suspended. ngx.now() is the wall clock as each worker last cached it, in milliseconds: it may step
-- backwards, and two workers may differ by a turn of the event loop.

local ffi = require "ffi"

local C = ffi.C
local tonumber = tonumber
local floor = math.floor

-- __asm__ names the function of libc. The Lua name is private, so that it does not clash with another module's
-- declaration.
ffi.cdef [[
int sluice_clock_gettime(int clock, long *timespec) __asm__("clock_gettime");
]]

local CLOCK_BOOTTIME = 7 -- Linux

local timespec = ffi.new("long[2]") -- seconds, nanoseconds

local _M = {}

-- now() -> microseconds since boot, a whole number below 2^53
function _M.now()
  C.sluice_clock_gettime(CLOCK_BOOTTIME, timespec)
  return tonumber(timespec[0]) * 1000000 + floor(tonumber(timespec[1]) / 1000)
end

return _M
