-- What nobody can guess, from the system.

local _M = {}

-- bytes(n) -> a string of n
function _M.bytes(n)
  local f = assert(io.open("/dev/urandom", "rb"))
  local bytes = f:read(n)
  f:close()
  return bytes
end

return _M
