-- The two parts of Bob Jenkins' lookup3 (2006), which mix three words of 32 bits. Both can be undone.
--
-- Sums and differences are made of 64 bits and cut, because LuaJIT makes one instruction of that. Of a sum of two Lua numbers it makes five, to see
-- whether it leaves 32 bits, even where that makes no difference.

local bit = require "bit"

local bxor, rol, tobit = bit.bxor, bit.rol, bit.tobit

local _M = {}

-- add(a, b) -> the sum's low 32 bits
local function add(a, b)
  return tobit(a + 0LL + b)
end

_M.add = add

local function sub(a, b)
  return tobit(a + 0LL - b)
end

-- mix(a, b, c) -> three words, of which each tells of all before it
function _M.mix(a, b, c)
  a = sub(a, c) a = bxor(a, rol(c, 4)) c = add(c, b)
  b = sub(b, a) b = bxor(b, rol(a, 6)) a = add(a, c)
  c = sub(c, b) c = bxor(c, rol(b, 8)) b = add(b, a)
  a = sub(a, c) a = bxor(a, rol(c, 16)) c = add(c, b)
  b = sub(b, a) b = bxor(b, rol(a, 19)) a = add(a, c)
  c = sub(c, b) c = bxor(c, rol(b, 4)) b = add(b, a)
  return a, b, c
end

-- final(a, b, c) -> three words; c depends on every bit
function _M.final(a, b, c)
  c = bxor(c, b) c = sub(c, rol(b, 14))
  a = bxor(a, c) a = sub(a, rol(c, 11))
  b = bxor(b, a) b = sub(b, rol(a, 25))
  c = bxor(c, b) c = sub(c, rol(b, 16))
  a = bxor(a, c) a = sub(a, rol(c, 4))
  b = bxor(b, a) b = sub(b, rol(a, 14))
  c = bxor(c, b) c = sub(c, rol(b, 24))
  return a, b, c
end

return _M
