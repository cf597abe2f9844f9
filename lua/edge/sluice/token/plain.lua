-- Reads claims of the plainest form, for which json.lua takes about twenty times as long: members that are printable ASCII without spaces
-- between them and without escapes, fractions or signs; their values are text or whole numbers. What this reads, json.lua reads alike
-- (TestPlainClaimsAreReadAsByTheStrictReader), as does internal/token/plain.go; everything else is left to json.lua.
--
-- It has no loop: LuaJIT compiles the whole way of a request in one piece, unless it comes upon a loop, and then it interprets most of
-- it. What takes a loop is left to the C library.

local ffi = require "ffi"

local C = ffi.C
local ffi_string, tonumber = ffi.string, tonumber

ffi.cdef [[
size_t sluice_strspn(const unsigned char *text, const char *of) __asm__("strspn");
size_t sluice_strcspn(const unsigned char *text, const char *of) __asm__("strcspn");
long long sluice_strtoll(const unsigned char *text, void *rest, int base) __asm__("strtoll");
]]

local QUOTE, COMMA, COLON, OPEN, CLOSE, ZERO = 34, 44, 58, 123, 125, 48
local MAX_DIGITS = 11
local DIGITS = "0123456789"

-- What ends a text of the plainest form: its quote, and whatever is not printable ASCII or begins an escape.
local special = { '"', "\\" }
for c = 1, 31 do
  special[#special + 1] = string.char(c)
end
for c = 127, 255 do
  special[#special + 1] = string.char(c)
end
local SPECIAL = table.concat(special)

-- Names of three letters, as little-endian numbers.
local function name(text)
  local a, b, c = text:byte(1, 3)
  return a + 256 * b + 65536 * c
end
local SUB, EXP, NBF, IAT = name "sub", name "exp", name "nbf", name "iat"

local _M = {}

-- The claims read so far, and the names of those that nobody else reads: four are enough for iss, aud, jti and one more.
local subject, expiry, from, issued
local other1, other2, other3, other4

-- text_end(bytes, at) -> where the closing quote is of the text whose opening quote should be at `at`, or nil
local function text_end(bytes, at)
  if bytes[at] ~= QUOTE then
    return nil
  end
  local stop = at + 1 + tonumber(C.sluice_strcspn(bytes + at + 1, SPECIAL))
  return bytes[stop] == QUOTE and stop or nil
end

-- number_at(bytes, at) -> a whole number, the position after it; or nil
local function number_at(bytes, at)
  local length = tonumber(C.sluice_strspn(bytes + at, DIGITS))
  if length == 0 or length > MAX_DIGITS or (bytes[at] == ZERO and length > 1) then
    return nil
  end
  return tonumber(C.sluice_strtoll(bytes + at, nil, 10)), at + length
end

-- is_new(other): is there room for another name, and was it not there before? If so it is kept.
local function is_new(other)
  if other == other1 or other == other2 or other == other3 or other4 then
    return false
  end
  if not other1 then
    other1 = other
  elseif not other2 then
    other2 = other
  elseif not other3 then
    other3 = other
  else
    other4 = other
  end
  return true
end

-- unread(bytes, at, stop) -> the position after a member that nobody reads, whose name ends at stop; or nil
local function unread(bytes, at, stop)
  if not is_new(ffi_string(bytes + at + 1, stop - at - 1)) then
    return nil
  end
  if bytes[stop + 2] == QUOTE then
    local value = text_end(bytes, stop + 2)
    return value and value + 1
  end
  local _, after = number_at(bytes, stop + 2)
  return after
end

-- member(bytes, at) -> the position after one name and its value, or nil
local function member(bytes, at)
  local stop = text_end(bytes, at)
  if not stop or bytes[stop + 1] ~= COLON then
    return nil
  end
  if stop ~= at + 4 then
    return unread(bytes, at, stop)
  end
  local what = bytes[at + 1] + 256 * bytes[at + 2] + 65536 * bytes[at + 3]
  at = at + 6
  if what == SUB then
    stop = text_end(bytes, at)
    if subject or not stop then
      return nil
    end
    subject = ffi_string(bytes + at + 1, stop - at - 1)
    return stop + 1
  elseif what ~= EXP and what ~= NBF and what ~= IAT then
    return unread(bytes, at - 6, stop)
  end
  local number, after = number_at(bytes, at)
  if not number then
    return nil
  elseif what == EXP and not expiry then
    expiry = number
  elseif what == NBF and not from then
    from = number
  elseif what == IAT and not issued then
    issued = number
  else
    return nil
  end
  return after
end

-- next_member(bytes, at) -> as member, if there is a comma; otherwise at
local function next_member(bytes, at)
  if at and bytes[at] == COMMA then
    return member(bytes, at + 1)
  end
  return at
end

-- claims(bytes, n) -> sub, exp, nbf or nil; or nothing if they are not of this form. bytes has room for a zero behind the n: nothing reads past it.
function _M.claims(bytes, n)
  bytes[n] = 0
  if bytes[0] ~= OPEN then
    return nil
  end
  subject, expiry, from, issued = nil, nil, nil, nil
  other1, other2, other3, other4 = nil, nil, nil, nil
  local at = member(bytes, 1)
  at = next_member(bytes, at)
  at = next_member(bytes, at)
  if at and bytes[at] == COMMA then
    at = next_member(bytes, at)
    at = next_member(bytes, at)
    at = next_member(bytes, at)
    at = next_member(bytes, at)
    at = next_member(bytes, at)
  end
  if not at or bytes[at] ~= CLOSE or at + 1 ~= n or not expiry then
    return nil
  end
  return subject, expiry, from
end

return _M
