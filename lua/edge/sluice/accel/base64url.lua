-- Unpadded base64url from memory to memory, for other accelerators; see sluice/token/base64url.lua.

local bit = require "bit"
local ffi = require "ffi"
require "ngx.base64" -- declares the functions of C below

local C = ffi.C
local band = bit.band
local cast, tonumber = ffi.cast, tonumber
local floor = math.floor
local BYTES = ffi.typeof("unsigned char *")

local from, to = ffi.new("ngx_str_t[1]"), ffi.new("ngx_str_t[1]")

local VALUES = ffi.new("unsigned char[256]")
for i, character in ipairs { ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"):byte(1, 64) } do
  VALUES[character] = i - 1
end

-- The unused bits of the last character, by the length modulo 4. They must be 0.
local UNUSED = { [2] = 15, [3] = 3 }

local _M = {}

-- decode(text, n, out) -> bytes written, or nil: the text is not canonical base64url. text: n characters; out has room
-- for 3n/4 bytes
function _M.decode(text, n, out)
  local rest = n % 4
  if rest == 1 then
    return nil
  end
  local source, target = from[0], to[0]
  source.data, source.len, target.data = cast(BYTES, text), n, out
  -- nginx's function stops at a "=" without an error
  if C.ngx_decode_base64url(to, from) ~= 0 or target.len ~= floor(n * 3 / 4)
    or rest > 0 and band(VALUES[text[n - 1]], UNUSED[rest]) ~= 0 then
    return nil
  end
  return (tonumber(target.len))
end

-- encode(bytes, n, out) -> characters written. out has room for them and for padding, which is not written
function _M.encode(bytes, n, out)
  local source, target = from[0], to[0]
  source.data, source.len, target.data = bytes, n, out
  C.ngx_encode_base64url(to, from)
  return (tonumber(target.len))
end

return _M
