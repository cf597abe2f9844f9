-- Tells of most heads that they are well written, for a fifth of what head.lua takes: of those with a dozen lines at most, each written "name: value"
-- with one space and CRLF, and none twice of those that pass to a backend or that may come once only. All others are left to head.lua. It has no
-- loop, see token/plain.lua.
--
-- Along the way it notes where the lines are that the edge reads. Who works on them in place makes no Lua string of them: to make one that is
-- new with every request costs more than to read it.

local ffi = require "ffi"
local base = require "resty.core.base"
local bit = require "bit"
local ipv4_to = require("sluice.address").ipv4_to
local request = require "sluice.request"
require "resty.core.request" -- declares the functions of C below

local C = ffi.C
local find, length_of, same = request.find, request.length, request.same
local get_request = base.get_request
local band, bor, bxor = bit.band, bit.bor, bit.bxor
local byte, char = string.byte, string.char
local ffi_string = ffi.string
local tonumber = tonumber

ffi.cdef [[
typedef struct {
  const unsigned char *authorization, *forwarded, *host;
  int authorization_length, forwarded_length, host_length;
  unsigned char address[4];
  int is_address;
  int body_digits;
  int names;
} sluice_plain_head_t;
int sluice_same_name(const unsigned char *at, const char *text, size_t n) __asm__("strncasecmp");
size_t sluice_named(const unsigned char *text, const char *of) __asm__("strspn");
size_t sluice_no_control(const unsigned char *text, const char *controls) __asm__("strcspn");
]]

local LINE_FEED, ZERO, ONE, BRACKET = 10, 48, 49, 91
local HEAD_LENGTH = request.variable "request_length"
local MAX_HEAD = 16384 -- bytes, see head.lua
local MOST = 12 -- lines

-- The bytes of a header's name (RFC 9110, section 5.6.2), but for the underscore: nginx takes it for a hyphen, and so head.lua looks closer.
local NAME = "!#$%&'*+-.^`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

-- What no value may hold. A zero byte ends it for the C library as well. In two halves: glibc looks for 16 bytes or fewer by an instruction of the
-- processor, and for more in a table that it makes each time.
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

-- Each name that matters has a bit. None of them may come twice: head.lua looks closer then. What says how the body is framed in chunks is always
-- left to it.
local TOKEN, AUTHORIZATION, KEYED, FORWARDED, LENGTH, HOST, CHUNKED = 1, 2, 4, 8, 16, 32, 64
local MARKS = {
  token = TOKEN, authorization = AUTHORIZATION, ["idempotency-key"] = KEYED, ["x-forwarded-for"] = FORWARDED,
  ["content-length"] = LENGTH, host = HOST, ["transfer-encoding"] = CHUNKED,
  -- That one of these is well written is seen at once as well.
  connection = 0, cookie = 0,
}
local NOTED = 127 -- all the bits above

-- The other headers that pass to a backend, see snippets/proxy.conf: of several lines of one name the first.
local PASSING = {
  "accept", "accept-encoding", "accept-language", "if-none-match", "if-modified-since", "range", "last-event-id", "content-type", "origin",
  "access-control-request-method", "access-control-request-headers", "user-agent", "traceparent", "tracestate",
  "webhook-id", "webhook-timestamp", "webhook-signature",
}
for i, name in ipairs(PASSING) do
  MARKS[name] = (NOTED + 1) * 2 ^ (i - 1)
end

-- Where a name of MARKS is kept: its length and its first and last letters tell it from all others of them.
local MAX_NAME = 32
local function place_of(length, first, last)
  return length * 32 + band(bxor(first, last), 31)
end
local text_of, mark_of = {}, {}
for place = 0, MAX_NAME * 32 - 1 do
  text_of[place], mark_of[place] = false, 0
end
for name, mark in pairs(MARKS) do
  local place = place_of(#name, byte(name), byte(name, -1))
  assert(not text_of[place], name)
  text_of[place], mark_of[place] = name, mark
end

-- The lines of the head at hand; of no use once this worker has yielded.
local lines = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", MOST)
local truncated = ffi.new("int[1]")

local seen = ffi.new("sluice_plain_head_t")

local _M = { TOKEN = TOKEN, KEYED = KEYED, CHUNKED = CHUNKED, ONCE = TOKEN + AUTHORIZATION + KEYED + CHUNKED, NOTED = NOTED, MARKS = MARKS }

-- mark_at(at, length) -> the bit of the name there, or 0; nil: it is not a name, or has an underscore
local function mark_at(at, length)
  if length < MAX_NAME and length > 0 then
    local place = place_of(length, at[0], at[length - 1])
    local text = text_of[place]
    if text and C.sluice_same_name(at, text, length) == 0 then
      return mark_of[place]
    end
  end
  return tonumber(C.sluice_named(at, NAME)) == length and 0 or nil
end

_M.mark_at = mark_at

-- The last host that was well written: few are asked for.
local MAX_HOST = 128
local host = ""

-- clean(text, size) -> whether a value is well written. What stands in brackets takes a closer look.
local function clean(text, size)
  return text[0] ~= BRACKET and tonumber(C.sluice_no_control(text, LOW)) == size and tonumber(C.sluice_no_control(text, HIGH)) == size
end

-- note(mark, text, size) -> whether the value of a line that matters is well written. To look for control characters takes longer than to see that
-- there can be none.
local function note(mark, text, size)
  if mark == AUTHORIZATION then
    seen.authorization, seen.authorization_length = text, size
  elseif mark == FORWARDED then
    seen.forwarded, seen.forwarded_length = text, size
    if ipv4_to(text, size, seen.address) then
      seen.is_address = 1
      return true
    end
  elseif mark == HOST then
    seen.host, seen.host_length = text, size
    if same(text, size, host) then
      return true
    elseif size <= MAX_HOST and clean(text, size) then
      host = ffi_string(text, size)
      return true
    end
  elseif mark == LENGTH then -- nginx has read it, and takes digits only
    seen.body_digits = size
    return true
  end
  return clean(text, size)
end

-- line(i, at) -> where the next one begins; or nil: this one is not plain, or does not begin at `at`
local function line(i, at)
  local key, value = lines[i].key, lines[i].value
  local length, size, text = key.len, value.len, value.data
  if key.data ~= at or size == 0 or text ~= at + length + 2 then
    return nil
  end
  local mark = mark_at(at, length)
  if not mark or mark == CHUNKED or band(seen.names, mark) ~= 0 then
    return nil
  end
  seen.names = bor(seen.names, mark)
  return note(mark, text, size) and text + size + 2 or nil
end

-- digits(value) -> the number that it is, of five digits at most; or nil
local function digits(value)
  local at, n = value.data, length_of(value)
  if n > 5 then
    return nil
  end
  local number = at[0] - ZERO
  if n > 1 then number = number * 10 + at[1] - ZERO end
  if n > 2 then number = number * 10 + at[2] - ZERO end
  if n > 3 then number = number * 10 + at[3] - ZERO end
  if n > 4 then number = number * 10 + at[4] - ZERO end
  return number
end

-- look(request_line) -> what is in the head, and head.judge() would find nothing; or nil: it must be asked. request_line: see request.lua
--   authorization, forwarded, host   where the value is (X-Forwarded-For, for the second), or a null pointer; it has a zero byte behind it
--   *_length                         and how many bytes it has, one at least
--   is_address, address              1 when forwarded is one address of IPv4, and its bytes
--   body_digits                      how long the value of Content-Length is; 0 without one
--   names                            TOKEN is in it when there is a header of that name
-- It is the same object for all requests: of no use once this worker has yielded.
function _M.look(request_line)
  local size = length_of(request_line)
  if size < 3 or request_line.data[size - 3] ~= ONE then -- HTTP/2 has no lines
    return nil
  end
  local r = get_request()
  local n = C.ngx_http_lua_ffi_req_get_headers_count(r, MOST, truncated)
  if n < 1 or truncated[0] ~= 0 then
    return nil
  end
  C.ngx_http_lua_ffi_req_get_headers(r, lines, n, 1)
  seen.authorization, seen.forwarded, seen.host, seen.is_address, seen.body_digits, seen.names = nil, nil, nil, 0, 0, 0
  local first = lines[0].key.data
  local at = line(0, first)
  if at and n > 1 then at = line(1, at) end
  if at and n > 2 then at = line(2, at) end
  if at and n > 3 then at = line(3, at) end
  if at and n > 4 then at = line(4, at) end
  if at and n > 5 then at = line(5, at) end
  if at and n > 6 then at = line(6, at) end
  if at and n > 7 then at = line(7, at) end
  if at and n > 8 then at = line(8, at) end
  if at and n > 9 then at = line(9, at) end
  if at and n > 10 then at = line(10, at) end
  if at and n > 11 then at = line(11, at) end
  local length = digits(find(HEAD_LENGTH))
  -- The last line must end there too, or its space makes up for a carriage return that the blank line lacks.
  if at and at[-1] == LINE_FEED and length and at - first + size + 4 == length and length <= MAX_HEAD then
    return seen
  end
end

return _M
