-- Judges how a request's head was written. nginx forgives more than the Go gateway: it ends lines at a bare line feed, takes a line without a
-- colon, and uses the first of two headers with one name. Where readers differ, requests are smuggled, so both edges refuse these.
--
-- nginx has taken the head apart by now, in place: it put a zero byte behind every name and value. Two endings of a line cannot be told from
-- CRLF any more: " LF", and CR CR LF (as if it were " CR LF"). docs/trust.md says why that does no harm.

local ffi = require "ffi"
local bit = require "bit"
local base = require "resty.core.base"
local address = require("sluice.address").parse
local plain_head = require "sluice.head.plain"
require "resty.core.request" -- declares the functions of C below

local C = ffi.C
local ngx = ngx
local ngx_var, raw_header = ngx.var, ngx.req.raw_header
local get_request = base.get_request
local clear_header, set_header = ngx.req.clear_header, ngx.req.set_header
local band, bor = bit.band, bit.bor
local byte, find, gsub, lower, match, sub = string.byte, string.find, string.gsub, string.lower, string.match, string.sub
local ffi_string = ffi.string

-- Bounds of a head; the Go gateway has the same (gateway/proxy/validator.go), and nginx keeps to 8 KiB a line by itself.
local MAX_HEAD = 16384 -- bytes, from the method to the blank line
local MAX_LINES = 100

local BRACKET = byte("[")

-- The lines of the head at hand; of no use once this worker has yielded.
local lines = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", MAX_LINES)
local truncated = ffi.new("int[1]")

-- The bytes of a header's name (RFC 9110, section 5.6.2), and those that no value may hold: control characters but a tab. nginx ends both with a zero
-- byte, in HTTP/2 too, so the C library can look through them, twenty times faster than a loop here.
local NAME = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
local CONTROL = "\127"
for c = 1, 31 do
  if c ~= 9 then
    CONTROL = CONTROL .. string.char(c)
  end
end

ffi.cdef [[
size_t sluice_name_length(const unsigned char *text, const char *of) __asm__("strspn");
size_t sluice_value_length(const unsigned char *text, const char *of) __asm__("strcspn");
]]

local _M = {}

-- gather() -> how many lines there are, now in `lines`; or nil: too many
local function gather()
  local r = get_request()
  local n = C.ngx_http_lua_ffi_req_get_headers_count(r, MAX_LINES, truncated)
  if truncated[0] ~= 0 then
    return nil
  end
  if n > 0 then
    C.ngx_http_lua_ffi_req_get_headers(r, lines, n, 1)
  end
  return n
end

local mark_at, MARKS = plain_head.mark_at, plain_head.MARKS
local KEYED, ONCE, NOTED = plain_head.KEYED, plain_head.ONCE, plain_head.NOTED -- which of two in ONCE another reader would take is anybody's guess

-- bracketed(key, value) -> whether a value that begins with a bracket is no Host, or one that holds an IPv6 address
local function bracketed(key, value)
  if lower(ffi_string(key.data, key.len)) ~= "host" then
    return true
  end
  local inside = match(ffi_string(value.data, value.len), "^%[([^%]]*:[^%]]*)%]")
  return inside and address(inside) ~= nil
end

-- unpacked(n, request) -> bytes that a head of HTTP/2 would have in HTTP/1: how well it was compressed must not matter
local function unpacked(n, request)
  local length = #request + 4
  for i = 0, n - 1 do
    length = length + tonumber(lines[i].key.len) + tonumber(lines[i].value.len) + 4
  end
  return length
end

-- plain(n, request, length) -> whether the lines stand side by side with two bytes between them, as they do with CRLF and no white space at
-- their ends, and nothing else is in the head
local function plain(n, request, length)
  local at = lines[0].key.data
  local first = at
  for i = 0, n - 1 do
    local line = lines[i]
    if line.key.data ~= at then
      return false
    end
    at = line.value.data + line.value.len + 2
  end
  -- The last one must end there too, or its space makes up for a carriage return that the blank line lacks.
  local last = lines[n - 1].value
  return last.data[last.len + 1] == 10 and at - first + #request + 4 == length
end

-- spelled() -> whether every line ends in CRLF, looked up in the head's text. ngx_lua puts a line feed in the place of the first
-- space behind a value.
local function spelled()
  local text = gsub(raw_header(), "([^\r])\n *\r\n", "%1\r\n")
  return sub(text, -4) == "\r\n\r\n" and not find(text, "[^\r]\n")
end

-- alias(key) -> whether nginx would take the line for one that passes, or that the edge reads, because it takes underscores for hyphens
local function alias(key)
  return MARKS[gsub(lower(ffi_string(key.data, key.len)), "_", "-")] ~= nil
end

-- drop_aliases(n): such lines go. The Go gateway does not know them either.
local function drop_aliases(n)
  for i = 0, n - 1 do
    local key = lines[i].key
    if not mark_at(key.data, tonumber(key.len)) and alias(key) then
      clear_header(ffi_string(key.data, key.len))
    end
  end
end

-- keep_first(n): of several lines of one name that passes to a backend, the first stays. From 1.23 on nginx would pass on all of them, with commas
-- between.
local function keep_first(n)
  local seen, twice = 0, 0
  for i = 0, n - 1 do
    local mark = mark_at(lines[i].key.data, tonumber(lines[i].key.len)) or 0
    if mark > NOTED then
      twice = bor(twice, band(seen, mark))
      seen = bor(seen, mark)
    end
  end
  for i = 0, n - 1 do
    local key, value = lines[i].key, lines[i].value
    local mark = mark_at(key.data, tonumber(key.len)) or 0
    if band(twice, mark) ~= 0 then
      twice = twice - mark
      local name = ffi_string(key.data, key.len)
      clear_header(name) -- to set it would leave some of the others there
      set_header(name, ffi_string(value.data, value.len))
    end
  end
end

-- judge() -> "400", "431", or nil: the head is well written, and has no control characters; each header that passes is in it once. Call it before
-- the request's body is read, and not from
-- what LuaJIT shall compile in one piece: it has a loop.
function _M.judge()
  local n = gather()
  if not n then
    return "431"
  end
  local request = ngx_var.request
  local framed = byte(request, -3) == 49 -- HTTP/1.x; in HTTP/2 there are no lines
  local length = framed and tonumber(ngx_var.request_length) or unpacked(n, request)
  if length > MAX_HEAD then
    return "431"
  end
  local seen, several, underscores = 0, false, false
  for i = 0, n - 1 do
    local line = lines[i]
    local key, value = line.key, line.value
    if framed and value.data == key.data + key.len then -- no colon
      return "400"
    end
    local mark = mark_at(key.data, tonumber(key.len))
    if not mark then
      if C.sluice_name_length(key.data, NAME) ~= key.len then
        return "400"
      end
      mark, underscores = 0, true
    end
    if C.sluice_value_length(value.data, CONTROL) ~= value.len then
      return "400"
    end
    if key.len == 4 and value.data[0] == BRACKET and not bracketed(key, value) then
      return "400"
    end
    if band(seen, mark) ~= 0 then
      if band(mark, ONCE) ~= 0 then
        return "400"
      end
      several = true
    end
    seen = bor(seen, mark)
    if mark == KEYED and value.len == 0 then
      ngx_var.sluice_idempotency_key = '""'
    end
  end
  if framed and not (n > 0 and plain(n, request, length)) and not spelled() then
    return "400"
  end
  if underscores then
    drop_aliases(n)
  end
  if several then
    keep_first(n)
  end
end

return _M
