-- Judges how a request's head was written. nginx forgives more than the Go gateway: it ends lines at a bare line feed, takes a line without a
-- colon, and uses the first of two headers with one name. Where readers differ, requests are smuggled, so both edges refuse these.
--
-- nginx has taken the head apart by now, in place: it put a zero byte behind every name and value. Two endings of a line cannot be told from
-- CRLF any more: " LF", and CR CR LF (as if it were " CR LF"). docs/trust.md says why that does no harm.

local ffi = require "ffi"
local bit = require "bit"
local base = require "resty.core.base"
require "resty.core.request" -- declares the functions of C below

local C = ffi.C
local ngx = ngx
local ngx_var, raw_header = ngx.var, ngx.req.raw_header
local get_request = base.get_request
local band, bnot, bor, bxor = bit.band, bit.bnot, bit.bor, bit.bxor
local byte, find, gsub, lower, sub = string.byte, string.find, string.gsub, string.lower, string.sub
local cast, ffi_string = ffi.cast, ffi.string

-- Bounds of a head; the Go gateway has the same (gateway/guard.go), and nginx keeps to 8 KiB a line by itself.
local MAX_HEAD = 16384 -- bytes, from the method to the blank line
local MAX_LINES = 100

local WORDS = ffi.typeof("const uint32_t *")

-- The lines of the head at hand; of no use once this worker has yielded.
local lines = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", MAX_LINES)
local truncated = ffi.new("int[1]")

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

-- Headers that must not come twice, by their length: which of two another reader would take is anybody's guess. The first letter, in lower case,
-- tells nearly all others of that length apart. Each has a bit.
local KEYED, ENCODED = 4, 8
local SINGLE = {
  [5] = { byte("t"), "token", 1 },
  [13] = { byte("a"), "authorization", 2 },
  [15] = { byte("i"), "idempotency-key", KEYED },
  [17] = { byte("t"), "transfer-encoding", ENCODED },
}

-- single(key) -> the bit of a name in SINGLE, or 0
local function single(key)
  local known = SINGLE[tonumber(key.len)]
  if known and bor(key.data[0], 0x20) == known[1] and lower(ffi_string(key.data, key.len)) == known[2] then
    return known[3]
  end
  return 0
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
  return at - first + #request + 4 == length
end

-- spelled() -> whether every line ends in CRLF, looked up in the head's text. ngx_lua puts a line feed in the place of the first
-- space behind a value.
local function spelled()
  local text = gsub(raw_header(), "([^\r])\n *\r\n", "%1\r\n")
  return sub(text, -4) == "\r\n\r\n" and not find(text, "[^\r]\n")
end

-- judge() -> "400", "431", or nil: the head is well written. Call it before the request's body is read.
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
  local seen = 0
  for i = 0, n - 1 do
    local line = lines[i]
    local key = line.key
    if framed and line.value.data == key.data + key.len then -- no colon
      return "400"
    end
    local mark = single(key)
    if band(seen, mark) ~= 0 then
      return "400"
    end
    seen = seen + mark
    if mark == KEYED and line.value.len == 0 then
      ngx_var.sluice_idempotency_key = '""'
    end
  end
  if framed and not (n > 0 and plain(n, request, length)) and not spelled() then
    return "400"
  end
end

-- printable(p, len) -> whether no byte of a value is a control character but a tab; four at a time, because this looks at all that a client sends
-- (see "determine if a word has a byte less than n" in the collections of bit tricks)
local function printable(p, len)
  local rest = len % 4
  local words = cast(WORDS, p)
  local high = 0
  for i = 0, (len - rest) / 4 - 1 do
    local w = words[i]
    local d = bxor(w, 0x7f7f7f7f)
    high = bor(high, band(w - 0x20202020, bnot(w)), band(d - 0x01010101, bnot(d)))
  end
  local odd = band(high, 0x80808080) ~= 0
  for i = len - rest, len - 1 do
    odd = odd or p[i] < 32 or p[i] == 127
  end
  if not odd then
    return true
  end
  return not find(ffi_string(p, len), "[%z\1-\8\10-\31\127]")
end

-- The bytes of a header's name (RFC 9110, section 5.6.2).
local TOKEN = ffi.new("uint8_t[256]")
for c in ("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"):gmatch(".") do
  TOKEN[byte(c)] = 1
end

local function named(p, len)
  local all = 1
  for i = 0, len - 1 do
    all = band(all, TOKEN[p[i]])
  end
  return all == 1
end

-- clean() -> whether names are made of letters that names may have, and values of no control characters; and whether the body comes in chunks
function _M.clean()
  local chunked = false
  for i = 0, (gather() or 0) - 1 do
    local key, value = lines[i].key, lines[i].value
    if not named(key.data, tonumber(key.len)) or not printable(value.data, tonumber(value.len)) then
      return false
    end
    chunked = chunked or single(key) == ENCODED
  end
  return true, chunked
end

return _M
