-- Accelerator: reads the buyer of an unverified token in nginx's memory, without a string for each of its parts. Stands
-- in for sluice/refusal_cache/subject.lua. Headers that accel/head.lua has not read, and claims that do not begin with
-- the name, are left to the plain module.

local base64url = require "sluice.accel.base64url"
local ffi = require "ffi"
local head = require("sluice.accel").need("head", "sluice.head")
local plain = require "sluice.refusal_cache.subject"

local C = ffi.C
local decode = base64url.decode
local ffi_string, tonumber = ffi.string, tonumber
local seen_headers, seen = head.headers, head.seen

ffi.cdef [[
int sluice_same_bytes(const unsigned char *at, const char *text, size_t n) __asm__("memcmp");
int sluice_same_letters(const unsigned char *at, const char *text, size_t n) __asm__("strncasecmp");
size_t sluice_count_of(const unsigned char *text, const char *of) __asm__("strspn");
const unsigned char *sluice_byte(const unsigned char *text, int character, size_t n) __asm__("memchr");
const unsigned char *sluice_text(const unsigned char *text, const char *part) __asm__("strstr");
unsigned int sluice_crc32(const unsigned char *text, size_t n) __asm__("ngx_http_lua_ffi_crc32_long");
]]

local _ = C.sluice_crc32 -- raises an error when the symbol is missing

local DOT, QUOTE, BACKSLASH, ZERO = 46, 34, 92, 0
local FIRST, FIRST_LENGTH = '{"sub":"', 8
local SCHEME, SCHEME_LENGTH = "bearer ", 7
local MAX_TOKEN = require("sluice.token.jws").MAX_TOKEN

local claims = ffi.new("unsigned char[?]", MAX_TOKEN + 1) -- with room for a zero behind the text

local _M = {}

-- payload(at, n) -> where the second of three segments is, and its length; or nil: there are not three
local function payload(at, n)
  local first = C.sluice_byte(at, DOT, n)
  if first == nil then
    return nil
  end
  local rest = n - tonumber(first - at) - 1
  local second = C.sluice_byte(first + 1, DOT, rest)
  if second == nil then
    return nil
  end
  local length = tonumber(second - first) - 1
  if C.sluice_byte(second + 1, DOT, rest - length - 1) ~= nil then
    return nil
  end
  return first + 1, length
end

-- sum_at(at, n) -> what plain.sum returns for a token of n bytes
local function sum_at(at, n)
  if n > MAX_TOKEN then
    return false
  end
  local segment, length = payload(at, n)
  if not segment then
    return false
  end
  local size = decode(segment, length, claims)
  if not size then
    return false
  end
  claims[size] = 0
  if C.sluice_byte(claims, ZERO, size) ~= nil or C.sluice_byte(claims, BACKSLASH, size) ~= nil then
    return nil
  end
  if size > FIRST_LENGTH and C.sluice_same_bytes(claims, FIRST, FIRST_LENGTH) == 0 then
    local name = claims + FIRST_LENGTH
    local stop = C.sluice_byte(name, QUOTE, size - FIRST_LENGTH)
    -- A second member "sub", in upper or lower case, would end in `b"` or `B"`.
    if stop ~= nil and C.sluice_text(stop, 'b"') == nil and C.sluice_text(stop, 'B"') == nil then
      return (tonumber(C.sluice_crc32(name, stop - name)))
    end
  end
  return plain.sum(ffi_string(at, n))
end

function _M.of(headers)
  if headers ~= seen_headers or seen.authorization == nil then
    return plain.of(headers)
  end
  local at, n = seen.authorization, seen.authorization_length
  if n < SCHEME_LENGTH or C.sluice_same_letters(at, SCHEME, SCHEME_LENGTH) ~= 0 then
    return false
  end
  local skipped = SCHEME_LENGTH + tonumber(C.sluice_count_of(at + SCHEME_LENGTH, " "))
  return sum_at(at + skipped, n - skipped)
end

return _M
