-- Accelerator: reads the head of a request in nginx's memory, and makes Lua strings only of the headers that the edge
-- uses. Stands in for sluice/head.lua.
--
-- It relies on this: nginx parses the head of HTTP/1 in place, so the names and values that
-- ngx_http_lua_ffi_req_get_headers returns lie in one buffer, in their order, two bytes apart ("name: value", CRLF).
-- This is verified for each head: a head with other distances is left to the plain module.
--
-- It accepts heads of at most a dozen lines, each written "name: value" with one space and CRLF, in which no name that
-- is passed on occurs twice. All other heads go to the plain module.

local base = require "resty.core.base"
local bit = require "bit"
local each = require("sluice.accel").select("each", "sluice.each")
local ffi = require "ffi"
local plain = require "sluice.head"
require "resty.core.request" -- declares the functions of C below

local C = ffi.C
local count_headers, get_headers = C.ngx_http_lua_ffi_req_get_headers_count, C.ngx_http_lua_ffi_req_get_headers
local get_request = base.get_request
local ngx = ngx
local ngx_var = ngx.var
local band, bor, bxor = bit.band, bit.bor, bit.bxor
local byte, char = string.byte, string.char
local ffi_string, tonumber = ffi.string, tonumber

ffi.cdef [[
typedef struct {
  const unsigned char *authorization, *forwarded, *host, *token, *body;
  int authorization_length, forwarded_length, host_length, token_length, body_length, names;
} sluice_head_t;
int sluice_same_name(const unsigned char *at, const char *text, size_t n) __asm__("strncasecmp");
size_t sluice_named(const unsigned char *text, const char *of) __asm__("strspn");
size_t sluice_no_control(const unsigned char *text, const char *controls) __asm__("strcspn");
]]

local LINE_FEED, ONE, BRACKET = 10, 49, 91
local MAX_LINES = 12

-- The bytes of a header's name, without the underscore: see sluice/head.lua.
local NAME = "!#$%&'*+-.^`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

-- The bytes that no value may hold; a zero byte ends a value for the C library. There are two sets, because glibc
-- searches for up to 16 bytes with one instruction of the processor, and for more of them with a table that it builds
-- for each call.
local function controls(first, last, more)
  local bytes = { more }
  for c = first, last do
    if c ~= 9 then
      bytes[#bytes + 1] = char(c)
    end
  end
  assert(#bytes <= 16)
  return table.concat(bytes)
end
local LOW, HIGH = controls(1, 16, "\127"), controls(17, 31)

-- Each name that the edge reads or passes on has a bit: no bit may come twice. A chunked body is left to the plain
-- module.
local TOKEN, AUTHORIZATION, KEYED, FORWARDED, LENGTH, HOST, CHUNKED = 1, 2, 4, 8, 16, 32, 64
local BITS = {
  token = TOKEN, authorization = AUTHORIZATION, ["idempotency-key"] = KEYED, ["x-forwarded-for"] = FORWARDED,
  ["content-length"] = LENGTH, host = HOST, ["transfer-encoding"] = CHUNKED, connection = 0, cookie = 0,
}
local next_bit = 128
for name in pairs(plain.PASSED) do
  if not BITS[name] then
    BITS[name], next_bit = next_bit, next_bit * 2
  end
end

-- A perfect hash of these names: the length and the first and last letters differ.
local MAX_NAME = 32
local function slot_of(length, first, last)
  return length * 32 + band(bxor(first, last), 31)
end
local name_in, bit_in = {}, {}
for slot = 0, MAX_NAME * 32 - 1 do
  name_in[slot], bit_in[slot] = false, 0
end
for name, mark in pairs(BITS) do
  local slot = slot_of(#name, byte(name), byte(name, -1))
  assert(not name_in[slot], name)
  name_in[slot], bit_in[slot] = name, mark
end

-- The head of the current request: valid until this worker yields.
local lines = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", MAX_LINES)
local truncated = ffi.new("int[1]")
local seen = ffi.new("sluice_head_t")

local _M = {}

-- headers: what read returns. A header becomes a string when it is used.
local headers = setmetatable({}, { __index = function(_, name)
  if name == "authorization" then
    return seen.authorization ~= nil and ffi_string(seen.authorization, seen.authorization_length) or nil
  elseif name == "x-forwarded-for" then
    return seen.forwarded ~= nil and ffi_string(seen.forwarded, seen.forwarded_length) or nil
  elseif name == "content-length" then
    return seen.body ~= nil and ffi_string(seen.body, seen.body_length) or nil
  elseif name == "token" then
    return seen.token ~= nil and ffi_string(seen.token, seen.token_length) or nil
  elseif name == "host" then
    return seen.host ~= nil and ffi_string(seen.host, seen.host_length) or nil
  end
end })

_M.headers, _M.seen = headers, seen

-- mark_at(at, length) -> the bit of the name there, or 0; nil: it is not a name, or has an underscore
local function mark_at(at, length)
  if length < MAX_NAME and length > 0 then
    local slot = slot_of(length, at[0], at[length - 1])
    local text = name_in[slot]
    if text and C.sluice_same_name(at, text, length) == 0 then
      return bit_in[slot]
    end
  end
  return tonumber(C.sluice_named(at, NAME)) == length and 0 or nil
end

-- clean(text, size) -> whether a value has no control characters. A value in brackets is left to the plain module.
local function clean(text, size)
  return text[0] ~= BRACKET and tonumber(C.sluice_no_control(text, LOW)) == size
    and tonumber(C.sluice_no_control(text, HIGH)) == size
end

local function note(mark, text, size)
  if mark == AUTHORIZATION then
    seen.authorization, seen.authorization_length = text, size
  elseif mark == FORWARDED then
    seen.forwarded, seen.forwarded_length = text, size
  elseif mark == HOST then
    seen.host, seen.host_length = text, size
  elseif mark == LENGTH then
    seen.body, seen.body_length = text, size
  elseif mark == TOKEN then
    seen.token, seen.token_length = text, size
  end
end

-- line(i, at) -> where the next line begins; or nil: this one is left to the plain module, or does not begin at `at`
local function line(i, at)
  local key, value = lines[i].key, lines[i].value
  local length, size, text = key.len, value.len, value.data
  if key.data ~= at or size == 0 or text ~= at + length + 2 then
    return nil
  end
  local mark = mark_at(at, length)
  if not mark or mark == CHUNKED or band(seen.names, mark) ~= 0 or not clean(text, size) then
    return nil
  end
  seen.names = bor(seen.names, mark)
  note(mark, text, size)
  return text + size + 2
end

-- walk(0, n - 1) -> true: a line is left to the plain module; or nil, and `after` is where the last line ends
local after
local walk = each(function(i)
  after = line(i, after)
  return not after or nil
end, MAX_LINES)

-- look(r, size) -> the parsed head, a sluice_head_t that is valid until the next call; or nil: the head is left to the
-- plain module. size: bytes of the request line, of HTTP/1
function _M.look(r, size)
  local n = count_headers(r, MAX_LINES, truncated)
  if n < 1 or truncated[0] ~= 0 then
    return nil
  end
  get_headers(r, lines, n, 1)
  seen.authorization, seen.forwarded, seen.host, seen.token, seen.body, seen.names = nil, nil, nil, nil, nil, 0
  local first = lines[0].key.data
  after = first
  if walk(0, n - 1) then
    return nil
  end
  -- The last line must end in CRLF, and the lengths must match. Otherwise a last line that ends in a space could hide a
  -- missing carriage return of the blank line.
  local length = tonumber(ngx_var.request_length)
  if after[-1] ~= LINE_FEED or after - first + size + 4 ~= length or length > plain.MAX_HEAD then
    return nil
  end
  return seen
end
local look = _M.look

-- read(request) -> see sluice/head.lua
function _M.read(request)
  if byte(request, -3) == ONE and look(get_request(), #request) -- HTTP/2 has no lines
    and (seen.body == nil or seen.body_length <= plain.MAX_LENGTH) then
    return headers
  end
  return plain.read(request)
end

return _M
