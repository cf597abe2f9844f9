-- Reads claims of the plainest form for accel/jws.lua, for which sluice/json.lua takes about twenty times as long:
-- members of printable ASCII without spaces between them and without escapes, fractions or signs; the values are texts
-- or whole numbers. json.lua reads the same from them (TestPlainClaimsAreReadAsByStrictReader), as does
-- internal/token/plain.go. All other claims are left to the plain module, sluice/token/claims.lua.
--
-- It relies on LuaJIT's trace compiler: it has no loop, so that one trace covers it. Functions of the C library contain
-- the loops.

local plain = require "sluice.token.claims"
local ffi = require "ffi"

local C = ffi.C
local copy, ffi_string, tonumber = ffi.copy, ffi.string, tonumber

ffi.cdef [[
size_t sluice_strspn(const unsigned char *text, const char *of) __asm__("strspn");
size_t sluice_strcspn(const unsigned char *text, const char *of) __asm__("strcspn");
long long sluice_strtoll(const unsigned char *text, void *rest, int base) __asm__("strtoll");
]]

local QUOTE, COMMA, COLON, OPEN, CLOSE, ZERO = 34, 44, 58, 123, 125, 48
local MAX_DIGITS = 11
local MAX_TOKEN = require("sluice.token.jws").MAX_TOKEN
local DIGITS = "0123456789"

-- The bytes that claims of the plainest form do not have: those that are not printable ASCII, and the one that begins
-- an escape. For a set of this length glibc builds a table in each call, so one call searches all claims.
local unusual = { "\\" }
for c = 1, 31 do
  unusual[#unusual + 1] = string.char(c)
end
for c = 127, 255 do
  unusual[#unusual + 1] = string.char(c)
end
local UNUSUAL = table.concat(unusual)

-- Names of three letters, as little-endian numbers.
local function name(text)
  local a, b, c = text:byte(1, 3)
  return a + 256 * b + 65536 * c
end
local SUB, EXP, NBF, IAT = name "sub", name "exp", name "nbf", name "iat"

local memory = ffi.new("unsigned char[?]", MAX_TOKEN + 1) -- with room for a zero behind the text

local _M = { memory = memory }

-- The claims read so far, and the names of up to four other members: iss, aud, jti and one more.
local subject, expiry, from, issued
local other1, other2, other3, other4

-- text_end(bytes, at) -> where the closing quote is of the text whose opening quote should be at `at`, or nil
local function text_end(bytes, at)
  if bytes[at] ~= QUOTE then
    return nil
  end
  local stop = at + 1 + tonumber(C.sluice_strcspn(bytes + at + 1, '"'))
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

-- is_new(other) -> whether the name of another member was not there before, and there was room to keep it
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

-- unread(bytes, at, stop) -> the position after a member that is not used; stop: the end of its name. Or nil
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

-- claims(n) -> sub, exp, nbf or nil; or nil: they are not of this form. They are n bytes of `memory`.
local function claims(n)
  local bytes = memory
  bytes[n] = 0
  if bytes[0] ~= OPEN or tonumber(C.sluice_strcspn(bytes, UNUSUAL)) ~= n then
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

-- read(n) -> sub, exp, nbf or nil; or nil: the plain module decides. The claims are n bytes of `memory`, fewer than
-- MAX_TOKEN.
function _M.read(n)
  local sub, exp, nbf = claims(n)
  if sub and sub ~= "" and #sub <= plain.MAX_SUBJECT then
    return sub, exp, nbf
  end
end

-- plainly(text) -> what read returns for a text, also for names that are empty or too long. For tests.
function _M.plainly(text)
  copy(memory, text, #text)
  return claims(#text)
end

return _M
