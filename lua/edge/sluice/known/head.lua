-- Tells of most heads that they are well written, for a fifth of what head.lua takes: of those with a dozen lines at most, each written "name: value"
-- with one space and CRLF, and none that may come once only twice. All others are left to head.lua. It has no loop, see token/plain.lua.

local ffi = require "ffi"
local base = require "resty.core.base"
local bit = require "bit"
require "resty.core.request" -- declares the functions of C below

local C = ffi.C
local ngx_var = ngx.var
local get_request = base.get_request
local band, bor = bit.band, bit.bor
local byte, char = string.byte, string.char
local tonumber = tonumber

ffi.cdef [[
size_t sluice_named(const unsigned char *text, const char *of) __asm__("strspn");
size_t sluice_no_control(const unsigned char *text, const char *controls) __asm__("strcspn");
]]

local MAX_HEAD = 16384 -- bytes, see head.lua
local MOST = 12 -- lines

-- The bytes of a header's name (RFC 9110, section 5.6.2).
local NAME = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

-- What no value may hold. A zero byte ends it for the C library as well.
local controls = { "\127" }
for c = 1, 31 do
  if c ~= 9 then
    controls[#controls + 1] = char(c)
  end
end
local CONTROLS = table.concat(controls)

-- By the length of a name that must not come twice: its first letter, in lower case, and a bit. Other names of that length and letter are counted
-- with it; head.lua looks closer. What says how the body is framed in chunks is always left to it.
local LENGTHS, NEVER = 256, 128
local letter, unit = ffi.new("uint8_t[?]", LENGTHS), ffi.new("uint8_t[?]", LENGTHS)
for name, mark in pairs { token = 1, authorization = 2, ["idempotency-key"] = 4, ["transfer-encoding"] = NEVER } do
  letter[#name], unit[#name] = byte(name), mark
end

-- The lines of the head at hand; of no use once this worker has yielded.
local lines = ffi.new("ngx_http_lua_ffi_table_elt_t[?]", MOST)
local truncated = ffi.new("int[1]")

local _M = {}

-- line(i, at, seen) -> where the next one begins, which names there were; or nil: this one is not plain, or does not begin at `at`
local function line(i, at, seen)
  local key, value = lines[i].key, lines[i].value
  local length, size = key.len, value.len
  if key.data ~= at or length >= LENGTHS or size == 0 or value.data ~= at + length + 2 then
    return nil
  end
  if letter[length] ~= 0 and bor(at[0], 0x20) == letter[length] then
    local mark = unit[length]
    if mark == NEVER or band(seen, mark) ~= 0 then
      return nil
    end
    seen = bor(seen, mark)
  end
  if tonumber(C.sluice_named(at, NAME)) ~= length or tonumber(C.sluice_no_control(value.data, CONTROLS)) ~= size then
    return nil
  end
  return value.data + size + 2, seen
end

-- plain(request) -> true: head.judge() would find nothing; or nil: it must be asked. request: the request line
function _M.plain(request)
  if byte(request, -3) ~= 49 then -- HTTP/2 has no lines
    return nil
  end
  local r = get_request()
  local n = C.ngx_http_lua_ffi_req_get_headers_count(r, MOST, truncated)
  if n < 1 or truncated[0] ~= 0 then
    return nil
  end
  C.ngx_http_lua_ffi_req_get_headers(r, lines, n, 1)
  local first = lines[0].key.data
  local at, seen = line(0, first, 0)
  if at and n > 1 then at, seen = line(1, at, seen) end
  if at and n > 2 then at, seen = line(2, at, seen) end
  if at and n > 3 then at, seen = line(3, at, seen) end
  if at and n > 4 then at, seen = line(4, at, seen) end
  if at and n > 5 then at, seen = line(5, at, seen) end
  if at and n > 6 then at, seen = line(6, at, seen) end
  if at and n > 7 then at, seen = line(7, at, seen) end
  if at and n > 8 then at, seen = line(8, at, seen) end
  if at and n > 9 then at, seen = line(9, at, seen) end
  if at and n > 10 then at, seen = line(10, at, seen) end
  if at and n > 11 then at = line(11, at, seen) end
  local length = tonumber(ngx_var.request_length)
  if at and at - first + #request + 4 == length and length <= MAX_HEAD then
    return true
  end
end

return _M
