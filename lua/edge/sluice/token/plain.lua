-- Reads claims of the plainest form, for which json.lua takes about twenty times as long: sub, exp, nbf and iat, each at most once, without
-- spaces, escapes, fractions or anything but printable ASCII. What this reads, json.lua reads alike (TestPlainClaimsAreReadAsByTheStrictReader),
-- as does internal/token/plain.go; everything else is left to json.lua.
--
-- It reads bytes in loops, because that is what LuaJIT compiles: patterns are not.

local ffi = require "ffi"

local ffi_string = ffi.string

local QUOTE, COMMA, COLON, BACKSLASH, OPEN, CLOSE, ZERO = 34, 44, 58, 92, 123, 125, 48
local MAX_DIGITS = 11

-- Names of three letters, as little-endian numbers.
local function name(text)
  local a, b, c = text:byte(1, 3)
  return a + 256 * b + 65536 * c
end
local SUB, EXP, NBF, IAT = name "sub", name "exp", name "nbf", name "iat"

local _M = {}

-- text_at(bytes, at) -> where the closing quote is, or nil
local function text_at(bytes, at)
  if bytes[at] ~= QUOTE then
    return nil
  end
  local i = at + 1
  while true do
    local c = bytes[i]
    if c == QUOTE then
      return i
    elseif c < 32 or c > 126 or c == BACKSLASH then
      return nil
    end
    i = i + 1
  end
end

-- number_at(bytes, at) -> a whole number, the position after it; or nil
local function number_at(bytes, at)
  local number, i = 0, at
  local digit = bytes[i] - ZERO
  while digit >= 0 and digit <= 9 do
    number = number * 10 + digit
    i = i + 1
    digit = bytes[i] - ZERO
  end
  if i == at or i > at + MAX_DIGITS or (bytes[at] == ZERO and i > at + 1) then
    return nil
  end
  return number, i
end

-- claims(bytes, n) -> sub, exp, nbf or nil; or nothing if they are not of this form. bytes has room for a zero behind the n: that ends every loop.
function _M.claims(bytes, n)
  bytes[n] = 0
  if bytes[0] ~= OPEN then
    return nil
  end
  local subject, expiry, from, issued
  local at = 1
  repeat
    if bytes[at] ~= QUOTE or bytes[at + 1] == 0 or bytes[at + 2] == 0 or bytes[at + 3] == 0 or bytes[at + 4] ~= QUOTE or bytes[at + 5] ~= COLON then
      return nil
    end
    local what = bytes[at + 1] + 256 * bytes[at + 2] + 65536 * bytes[at + 3]
    at = at + 6
    if what == SUB then
      local stop = text_at(bytes, at)
      if subject or not stop then
        return nil
      end
      subject = ffi_string(bytes + at + 1, stop - at - 1)
      at = stop + 1
    else
      local number, after = number_at(bytes, at)
      if not number then
        return nil
      end
      at = after
      if what == EXP and not expiry then
        expiry = number
      elseif what == NBF and not from then
        from = number
      elseif what == IAT and not issued then
        issued = number
      else
        return nil
      end
    end
    local after = bytes[at]
    at = at + 1
  until after ~= COMMA
  if bytes[at - 1] ~= CLOSE or at ~= n or not expiry then
    return nil
  end
  return subject, expiry, from
end

return _M
