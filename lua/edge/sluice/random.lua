-- Random bytes from the operating system.

local _M = {}

-- bytes(n) -> a string of n random bytes
function _M.bytes(n)
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(n)
  file:close()
  return bytes
end

return _M
