-- Unpadded base64url between memory and memory, without a Lua string in between. Only the one canonical spelling is decoded: with lenient
-- decoding a token has many spellings.

local ffi = require "ffi"
local bit = require "bit"

local C = ffi.C
local band = bit.band
local tonumber, floor = tonumber, math.floor

-- nginx's own; what stands after __asm__ is its name there, and ours is private, so that no other module's declaration can clash.
ffi.cdef [[
typedef struct { size_t length; unsigned char *data; } sluice_text;
intptr_t sluice_decode_base64url(sluice_text *to, sluice_text *from) __asm__("ngx_decode_base64url");
void sluice_encode_base64url(sluice_text *to, sluice_text *from) __asm__("ngx_encode_base64url");
]]

local from, to = ffi.new("sluice_text[1]"), ffi.new("sluice_text[1]")
local mutable = ffi.typeof("unsigned char *")

local VALUES = ffi.new("unsigned char[256]")
for i, character in ipairs { ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"):byte(1, 64) } do
  VALUES[character] = i - 1
end

-- The bits of the last character that mean nothing, by the length's rest modulo 4.
local LOOSE = { [2] = 15, [3] = 3 }

local _M = {}

-- decode(text, n, out) -> bytes written, or nil. text: n characters; out has room for 3n/4 bytes
function _M.decode(text, n, out)
  local rest = n % 4
  if rest == 1 then
    return nil
  end
  local f, t = from[0], to[0]
  f.data, f.length = ffi.cast(mutable, text), n
  t.data = out
  -- nginx stops at a =, and calls what came before it the whole
  if C.sluice_decode_base64url(to, from) ~= 0 or t.length ~= floor(n * 3 / 4) then
    return nil
  end
  if rest > 0 and band(VALUES[text[n - 1]], LOOSE[rest]) ~= 0 then
    return nil
  end
  return tonumber(t.length)
end

-- encode(bytes, n, out) -> characters written. out has room for them, and for padding that is not written
function _M.encode(bytes, n, out)
  local f, t = from[0], to[0]
  f.data, f.length = ffi.cast(mutable, bytes), n
  t.data = out
  C.sluice_encode_base64url(to, from)
  return tonumber(t.length)
end

return _M
