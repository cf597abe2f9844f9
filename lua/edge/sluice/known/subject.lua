-- Whom a token names, read without a look at its signature: only to tell who cannot hold an order. It errs on the safe side: whatever two readers
-- could understand differently may be anybody's. Whoever forges a holder's name is let through to the limits and the signature, and no further.
--
-- There is no loop in it, see token/plain.lua: what takes a loop is left to the C library. It works on the request where it is: a Lua string of every
-- token would cost more than all of this.

local base64url = require "sluice.token.base64url"
local ffi = require "ffi"

local C = ffi.C
local decode = base64url.decode
local copy, tonumber = ffi.copy, tonumber

ffi.cdef [[
size_t sluice_strlen(const unsigned char *text) __asm__("strlen");
size_t sluice_white(const unsigned char *text, const char *of) __asm__("strspn");
int sluice_same(const unsigned char *a, const char *b, size_t n) __asm__("memcmp");
int sluice_same_letters(const unsigned char *a, const char *b, size_t n) __asm__("strncasecmp");
const unsigned char *sluice_find(const unsigned char *text, int character, size_t n) __asm__("memchr");
const unsigned char *sluice_strstr(const unsigned char *text, const char *part) __asm__("strstr");
const unsigned char *sluice_strcasestr(const unsigned char *text, const char *part) __asm__("strcasestr");
unsigned int sluice_crc32(const unsigned char *text, size_t n) __asm__("ngx_http_lua_ffi_crc32_long");
]]

local MAX_TOKEN = 4096 -- bytes that a verifier looks at, see token.lua
local DOT, QUOTE, BACKSLASH, COLON = 46, 34, 92, 58
local KEY, KEY_LENGTH = '"sub"', 5
local WHITE = " \n\r\t" -- JSON's

-- How nearly all claims begin.
local FIRST, FIRST_LENGTH = '{"sub":"', 8

local SCHEME, SCHEME_LENGTH = "bearer ", 7

local claims = ffi.new("unsigned char[?]", MAX_TOKEN + 1) -- a text of C: with a zero behind it
local held = ffi.new("unsigned char[?]", MAX_TOKEN + 1)

local _M = {}

-- named(at, stop) -> CRC-32 of the name whose first byte is at `at`, where its closing quote is at `stop`
local function named(at, stop)
  return tonumber(C.sluice_crc32(at, stop - at))
end

-- searched(n) -> as sum, from claims in which the name may be anywhere, and may be spelt in any case
local function searched(n)
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
  local stop = C.sluice_find(at + 1, QUOTE, n - (at + 1 - claims))
  if stop == nil then
    return nil
  end
  return named(at + 1, stop)
end

-- sum_at(text, n) -> CRC-32 of the subject's bytes; false: no verifier takes this for a token; nil: it takes a verifier to say who
local function sum_at(text, n)
  if n > MAX_TOKEN then
    return false
  end
  local first = C.sluice_find(text, DOT, n)
  if first == nil then
    return false
  end
  local rest = n - tonumber(first - text) - 1
  local second = C.sluice_find(first + 1, DOT, rest)
  if second == nil then
    return false
  end
  local length = tonumber(second - first) - 1
  if C.sluice_find(second + 1, DOT, rest - length - 1) ~= nil then
    return false
  end
  local size = decode(first + 1, length, claims)
  if not size then
    return false
  end
  claims[size] = 0
  if tonumber(C.sluice_strlen(claims)) ~= size or C.sluice_find(claims, BACKSLASH, size) ~= nil then
    return nil
  end
  if size > FIRST_LENGTH and C.sluice_same(claims, FIRST, FIRST_LENGTH) == 0 then
    local stop = C.sluice_find(claims + FIRST_LENGTH, QUOTE, size - FIRST_LENGTH)
    -- However a second name is spelt, it ends so.
    if stop ~= nil and C.sluice_strstr(stop, 'b"') == nil and C.sluice_strstr(stop, 'B"') == nil then
      return named(claims + FIRST_LENGTH, stop)
    end
  end
  return searched(size)
end

-- sum_of(value, n) -> the same for the token in a header Authorization, see token.from_headers
function _M.sum_of(value, n)
  if n <= SCHEME_LENGTH or C.sluice_same_letters(value, SCHEME, SCHEME_LENGTH) ~= 0 then
    return false
  end
  local white = SCHEME_LENGTH + tonumber(C.sluice_white(value + SCHEME_LENGTH, " "))
  return sum_at(value + white, n - white)
end

-- sum(raw) -> the same for a token in a Lua string
function _M.sum(raw)
  if #raw > MAX_TOKEN then
    return false
  end
  copy(held, raw, #raw)
  held[#raw] = 0
  return sum_at(held, #raw)
end

return _M
