-- Good tokens that one worker remembers, each by the whole text that it came in and until it expires: buyers in a hurry come again and again. A token
-- has two places, which its signature names. A new one takes the first of them, what was there goes to the second, and what was there is forgotten.
-- So memory is bounded, at 6 MB or so for tokens of the usual size.

local ffi = require "ffi"
local names = require "sluice.limit.name"

local C = ffi.C
local copy_name = names.copy

ffi.cdef [[
int sluice_same_text(const unsigned char *at, const char *text, size_t n) __asm__("memcmp");
]]

local PAIRS = 8192
local MOST, LEAST = 1024, 8 -- bytes of a text
local BYTES = ffi.typeof("const unsigned char *")

local texts, subjects, expiries -- by place
local counted = names.many(2 * PAIRS) -- by which limits count the subjects

local _M = {}

-- forget(): all of them
function _M.forget()
  texts, subjects, expiries = {}, {}, {}
  for place = 0, 2 * PAIRS - 1 do
    texts[place], subjects[place], expiries[place] = false, false, 0
  end
end

_M.forget()

-- place_of(at, n) -> the first place of n bytes. The last characters of a signature but two, which carry a few bits only, are as good as a checksum,
-- and are there already.
local function place_of(at, n)
  return (at[n - 5] * 4489 + at[n - 4] * 67 + at[n - 3]) % PAIRS * 2
end

local function is(place, at, n)
  local text = texts[place]
  return text and #text == n and C.sluice_same_text(at, text, n) == 0
end

-- recall(at, n, now, whose) -> the subject of the token in n bytes, a string or memory; or nil. now: seconds since 1970. whose: a name
-- (limit/name.lua) to be made the subject's
function _M.recall(at, n, now, whose)
  if n > MOST or n < LEAST then
    return nil
  end
  at = ffi.cast(BYTES, at)
  local place = place_of(at, n)
  if not is(place, at, n) then
    place = place + 1
    if not is(place, at, n) then
      return nil
    end
  end
  if now < expiries[place] then
    copy_name(whose, counted[place])
    return subjects[place]
  end
end

-- remember(text, subject, expiry, name): a token that was found good, which recall did not know
function _M.remember(text, subject, expiry, name)
  local n = #text
  if n > MOST or n < LEAST then
    return
  end
  local first = place_of(ffi.cast(BYTES, text), n)
  local second = first + 1
  texts[second], subjects[second], expiries[second] = texts[first], subjects[first], expiries[first]
  copy_name(counted[second], counted[first])
  texts[first], subjects[first], expiries[first] = text, subject, expiry
  copy_name(counted[first], name)
end

return _M
