-- Request ids: 32 hexadecimal digits, unique for one nginx and its restarts. nginx's own $request_id takes its digits
-- from OpenSSL's random numbers, which costs as much as a small answer. These ids are unique and hard to predict, but
-- they are not secrets.
--
-- The first 8 digits are random for each start and reload of nginx. The other 24 hold a counter, the process id of the
-- worker and the second in which it began. They are scrambled by the `final` function of Bob Jenkins' lookup3, which is
-- a bijection, between two random keys (Even and Mansour 1991): a client cannot count the requests between two ids.

local bit = require "bit"
local ffi = require "ffi"

local band, bxor, rol, rshift, tobit = bit.band, bit.bxor, bit.rol, bit.rshift, bit.tobit
local ffi_string = ffi.string

-- The two digits of each byte, as they lie in memory: string.format takes ten times as long.
local DIGITS = ffi.new("uint16_t[256]")
for i = 0, 255 do
  ffi.copy(DIGITS + i, ("%02x"):format(i), 2)
end

local SIZE = 32
local buffer = ffi.new("uint16_t[?]", SIZE / 2)

local random = {} -- 7 words: of this nginx; before and after the scrambling
local count, worker, began = 0, 0, 0

local _M = { SIZE = SIZE }

-- final(a, b, c) -> three words that depend on every bit of a, b and c
local function final(a, b, c)
  c = tobit(bxor(c, b) - rol(b, 14))
  a = tobit(bxor(a, c) - rol(c, 11))
  b = tobit(bxor(b, a) - rol(a, 25))
  c = tobit(bxor(c, b) - rol(b, 16))
  a = tobit(bxor(a, c) - rol(c, 4))
  b = tobit(bxor(b, a) - rol(a, 14))
  c = tobit(bxor(c, b) - rol(b, 24))
  return a, b, c
end

-- init(bytes): call it in the master. bytes: 28 random bytes
function _M.init(bytes)
  assert(#bytes == 28)
  for i = 1, 7 do
    local a, b, c, d = bytes:byte(4 * i - 3, 4 * i)
    random[i] = tobit(a + b * 256 + c * 65536 + d * 16777216)
  end
end

-- init_worker(pid, second): together they differ from those of all other workers of this nginx
function _M.init_worker(pid, second)
  count, worker, began = 0, pid, second
end

-- write(i, word): the digits of a word, the i-th of four
local function write(i, word)
  local at = 4 * i
  buffer[at] = DIGITS[rshift(word, 24)]
  buffer[at + 1] = DIGITS[band(rshift(word, 16), 255)]
  buffer[at + 2] = DIGITS[band(rshift(word, 8), 255)]
  buffer[at + 3] = DIGITS[band(word, 255)]
end

-- write_next() -> the next id: SIZE bytes of memory, until the next call. A worker never makes 2^32 of them in a
-- second, so `began` may advance when the counter wraps.
function _M.write_next()
  count = tobit(count + 1)
  if count == 0 then
    began = began + 1
  end
  local a, b, c = final(bxor(count, random[2]), bxor(worker, random[3]), bxor(began, random[4]))
  write(0, random[1])
  write(1, bxor(a, random[5]))
  write(2, bxor(b, random[6]))
  write(3, bxor(c, random[7]))
  return buffer
end

-- next() -> the next id as a string
function _M.next()
  return (ffi_string(_M.write_next(), SIZE))
end

-- wrap(n): sets the counter n ids before it wraps, for tests
function _M.wrap(n)
  count = -n
end

return _M
