-- Whom a token names, read without a look at its signature: only to tell who cannot hold an order. It errs on the safe side: whatever two readers
-- could understand differently may be anybody's. Whoever forges a holder's name is let through to the limits and the signature, and no further.

local base64url = require "sluice.token.base64url"
local bit = require "bit"
local ffi = require "ffi"

local decode = base64url.decode
local find = string.find
local bor = bit.bor
local cast, ffi_string = ffi.cast, ffi.string
local crc32 = ngx.crc32_long

local MAX_TOKEN = 4096 -- bytes that a verifier looks at, see token.lua
local QUOTE, BACKSLASH, COLON = 34, 92, 58
local S, U, B, LOWER = 115, 117, 98, 32

local bytes_of = ffi.typeof("const unsigned char *")
local AHEAD = 8 -- zeros behind the claims, so that looking ahead needs no care
local claims = ffi.new("unsigned char[?]", MAX_TOKEN + AHEAD)

local _M = {}

-- key(n) -> where the one `"sub"` of n bytes of claims ends; or nil: there is not exactly one, or there are escapes
local function key(n)
  local at
  for i = 0, n - 1 do
    local b = claims[i]
    if b == BACKSLASH then
      return nil
    end
    if b == QUOTE and claims[i + 4] == QUOTE
      and bor(claims[i + 1], LOWER) == S and bor(claims[i + 2], LOWER) == U and bor(claims[i + 3], LOWER) == B
    then
      if at then
        return nil
      end
      at = i + 5
    end
  end
  return at
end

-- skip(i) -> the first place from i on that is not JSON's white space
local function skip(i)
  local b = claims[i]
  while b == 32 or b == 10 or b == 13 or b == 9 do
    i = i + 1
    b = claims[i]
  end
  return i
end

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
  ffi.fill(claims + n, AHEAD)
  local at = key(n)
  if not at then
    return nil
  end
  at = skip(at)
  if claims[at] ~= COLON then
    return nil
  end
  at = skip(at + 1)
  if claims[at] ~= QUOTE then
    return nil
  end
  local from = at + 1
  at = from
  while at < n do
    if claims[at] == QUOTE then
      return crc32(ffi_string(claims + from, at - from))
    end
    at = at + 1
  end
  return nil
end

return _M
