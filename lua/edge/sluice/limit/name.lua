-- What tells one client from all others, in 16 bytes: an address as it is, a buyer by a hash. To make a Lua string of either with every request would
-- cost more than to find a bucket does.

local ffi = require "ffi"

local copy = ffi.copy
local md5 = ngx.md5_bin

ffi.cdef [[
typedef union { int32_t words[4]; unsigned char bytes[16]; } sluice_name_of_client_t;
]]

local secret = ""

local _M = {}

-- init(text): what clients do not know, so that none can make up two buyers with one name
function _M.init(text)
  secret = text
end

-- new() -> a name, to be written to. name.words is what limit/buckets.lua compares.
function _M.new()
  return ffi.new("sluice_name_of_client_t")
end

-- copy(to, from): names
function _M.copy(to, from)
  local a, b = to.words, from.words
  a[0], a[1], a[2], a[3] = b[0], b[1], b[2], b[3]
end

-- many(n) -> an array of n names
function _M.many(n)
  return ffi.new("sluice_name_of_client_t[?]", n)
end

-- address(name, at, n): n bytes of memory, or a string; eight at most
function _M.address(name, at, n)
  local words = name.words
  words[0], words[1], words[2], words[3] = 0, 0, 0, n
  copy(name.bytes, at, n)
end

-- buyer(name, subject): by MD5
function _M.buyer(name, subject)
  copy(name.bytes, md5(secret .. subject), 16)
end

return _M
