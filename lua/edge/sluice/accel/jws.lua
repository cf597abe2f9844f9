-- Accelerator: verifies a token and reads its claims in memory, without a string for each of its parts. Stands in for
-- sluice/token/jws.lua. Signatures with a public key, which take far longer, are left to the plain module.
--
-- It relies on nginx's functions for base64url.

local base64url = require "sluice.accel.base64url"
local claims = require "sluice.accel.claims"
local crypto = require "sluice.token.crypto"
local ffi = require "ffi"
local hmac = require "sluice.token.hmac"
local plain = require "sluice.token.jws"
local plain_claims = require "sluice.token.claims"

local C = ffi.C
local cast, ffi_string, tonumber = ffi.cast, ffi.string, tonumber
local decode, encode = base64url.decode, base64url.encode
local BYTES = ffi.typeof("const unsigned char *")

ffi.cdef [[
const unsigned char *sluice_find(const unsigned char *text, int character, size_t n) __asm__("memchr");
]]

local DOT = 46
local MAX_TOKEN, TOO_LONG = plain.MAX_TOKEN, plain.TOO_LONG
local MAC = 43 -- characters of 32 bytes

local written = ffi.new("unsigned char[?]", MAC + 1)

local _M = {}

-- The text with the open token, where the token begins, its bytes, their number, and where its dots are.
local text, start, bytes, n, first, second

function _M.open(whole, from)
  local size = #whole - from + 1
  if size > MAX_TOKEN then
    return nil, TOO_LONG
  end
  local at = cast(BYTES, whole) + (from - 1)
  local a = C.sluice_find(at, DOT, size)
  local b = a ~= nil and C.sluice_find(a + 1, DOT, size - tonumber(a - at) - 1) or nil
  if b == nil or C.sluice_find(b + 1, DOT, size - tonumber(b - at) - 1) ~= nil then
    return nil, "not three segments"
  end
  text, start, bytes, n, first, second = whole, from, at, size, tonumber(a - at), tonumber(b - at)
  return (ffi_string(at, first))
end

function _M.is_signed(key)
  if not key.hmac then
    plain.open(text, start)
    return plain.is_signed(key)
  end
  local mac = hmac.compute(key.hmac, bytes, second)
  return mac ~= nil and n - second - 1 == MAC and encode(mac, hmac.SIZE, written) == MAC
    and crypto.sluice_CRYPTO_memcmp(written, bytes + second + 1, MAC) == 0
end

function _M.claims()
  local size = decode(bytes + first + 1, second - first - 1, claims.memory)
  if not size then
    return nil, "not base64url"
  end
  if not plain_claims.expects then
    local sub, exp, nbf = claims.read(size)
    if sub then
      return sub, exp, nbf
    end
  end
  return plain_claims.read(ffi_string(claims.memory, size))
end

return _M
