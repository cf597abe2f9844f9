-- The number of a request: 32 hexadecimal digits, as in nginx's $request_id. To make that one takes nginx a third of its time for a small answer, for
-- OpenSSL's random numbers withstand whoever wants to guess a key. A number here need only be no other request's.
--
-- Its last 24 digits are a counter, the worker's process and the second in which it began, which no two workers of one nginx have in common,
-- scrambled by Bob Jenkins' lookup3 (`final`), which can be undone and so makes no two of them one. Secret words before and after (Even and Mansour
-- 1991) keep others from counting requests; it is not made for what must never be guessed. The first 8 digits are of the nginx, by chance, and others
-- with each start and reload.

local bit = require "bit"
local ffi = require "ffi"
local lookup3 = require "sluice.lookup3"

local band, bxor, rshift = bit.band, bit.bxor, bit.rshift
local cast = ffi.cast
local add, final = lookup3.add, lookup3.final

-- The digits of each byte, as they lie in memory.
local DIGITS = ffi.new("uint16_t[256]")
for i = 0, 255 do
  ffi.copy(DIGITS + i, ("%02x"):format(i), 2)
end

local SIZE = 32
local POINTER = ffi.typeof("uint16_t *")

-- How often the counter has gone round is added to the second: it takes more than a second to go round.
local state = ffi.new("struct { int32_t count, worker, began, before[3], after[3], nginx; }")

local _M = { SIZE = SIZE, state = state }

-- init(random): 28 bytes that nobody knows; once, before the workers fork
function _M.init(random)
  assert(#random == 28)
  ffi.copy(state.before, random, 28)
end

-- init_worker(worker, second): what no other worker of this nginx has, together
function _M.init_worker(worker, second)
  state.count, state.worker, state.began = 0, worker, second
end

-- write(at, i, word): a word's digits, the i-th of four
local function write(at, i, word)
  at[i] = DIGITS[rshift(word, 24)]
  at[i + 1] = DIGITS[band(rshift(word, 16), 255)]
  at[i + 2] = DIGITS[band(rshift(word, 8), 255)]
  at[i + 3] = DIGITS[band(word, 255)]
end

-- write_next(memory): another number, SIZE bytes
function _M.write_next(memory)
  local count = add(state.count, 1)
  state.count = count
  if count == 0 then
    state.began = state.began + 1
  end
  local before, after, at = state.before, state.after, cast(POINTER, memory)
  local a, b, c = bxor(count, before[0]), bxor(state.worker, before[1]), bxor(state.began, before[2])
  a, b, c = final(a, b, c)
  write(at, 0, state.nginx)
  write(at, 4, bxor(a, after[0]))
  write(at, 8, bxor(b, after[1]))
  write(at, 12, bxor(c, after[2]))
end

return _M
