-- Whom a token names, read without a look at its signature: only to tell who cannot hold an order. It errs on the safe side: whatever two readers
-- could understand differently may be anybody's. Whoever forges a holder's name is let through to the limits and the signature, and no further.
--
-- There is no loop in it, see token/plain.lua: what takes a loop is left to the C library.

local base64url = require "sluice.token.base64url"
local ffi = require "ffi"

local C = ffi.C
local decode = base64url.decode
local find = string.find
local cast, ffi_string, tonumber = ffi.cast, ffi.string, tonumber
local crc32 = ngx.crc32_long

ffi.cdef [[
size_t sluice_strlen(const unsigned char *text) __asm__("strlen");
size_t sluice_white(const unsigned char *text, const char *of) __asm__("strspn");
const unsigned char *sluice_strchr(const unsigned char *text, int character) __asm__("strchr");
const unsigned char *sluice_strcasestr(const unsigned char *text, const char *part) __asm__("strcasestr");
]]

local MAX_TOKEN = 4096 -- bytes that a verifier looks at, see token.lua
local QUOTE, BACKSLASH, COLON = 34, 92, 58
local KEY, KEY_LENGTH = '"sub"', 5
local WHITE = " \n\r\t" -- JSON's

local bytes_of = ffi.typeof("const unsigned char *")
local claims = ffi.new("unsigned char[?]", MAX_TOKEN + 1) -- a text of C: with a zero behind it

local _M = {}

-- sum(raw) -> CRC-32 of the subject's bytes; false: no verifier takes this for a token; nil: it takes a verifier to say who
function _M.sum(raw)
  if #raw > MAX_TOKEN then
    return false
  end
  local first = find(raw, ".", 1, true)
  local second = first and find(raw, ".", first + 1, true)
  if not second or find(raw, ".", second + 1, true) then
    return false
  end
  local n = decode(cast(bytes_of, raw) + first, second - first - 1, claims)
  if not n then
    return false
  end
  claims[n] = 0
  if tonumber(C.sluice_strlen(claims)) ~= n or C.sluice_strchr(claims, BACKSLASH) ~= nil then
    return nil
  end
  local at = C.sluice_strcasestr(claims, KEY)
  if at == nil or C.sluice_strcasestr(at + KEY_LENGTH - 1, KEY) ~= nil then
    return nil
  end
  at = at + KEY_LENGTH
  at = at + C.sluice_white(at, WHITE)
  if at[0] ~= COLON then
    return nil
  end
  at = at + 1 + C.sluice_white(at + 1, WHITE)
  if at[0] ~= QUOTE then
    return nil
  end
  local stop = C.sluice_strchr(at + 1, QUOTE)
  if stop == nil then
    return nil
  end
  return crc32(ffi_string(at + 1, stop - at - 1))
end

return _M
