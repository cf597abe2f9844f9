-- A rate that is a Lua number as a fraction: 200 is 1 request in 5,000 us, 1/60 is 1 in 60,000,000.

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local SECOND = 1000000 -- us
local MOST = 1e12 -- requests per second, more than a clock of microseconds can tell from no limit
local LEAST = 1e-9 -- one request in 31 years, which nobody can tell from none; far below, the numbers are too large for any arithmetic

-- The fraction looked for has at most this in its denominator: 1/86400 has, and all that has five decimals.
local FINEST = 100000

local _M = {}

local function gcd(a, b)
  while b > 0 do
    a, b = b, a % b
  end
  return a
end

-- nearest(x) -> p, q with p / q == x, as continued fractions find them; or nil
local function nearest(x)
  local p, q, p_before, q_before = 1, 0, 0, 1
  local rest = x
  repeat
    local whole = floor(rest)
    p, p_before = whole * p + p_before, p
    q, q_before = whole * q + q_before, q
    if q > FINEST then
      return nil
    end
    if p / q == x then
      return p, q
    end
    rest = 1 / (rest - whole)
  until false
end

-- of(rate) -> count, period: count requests in period us, in lowest terms. rate is above 0, in requests per second.
-- What is no such fraction is rounded down, so that its bound holds; all below LEAST are LEAST.
function _M.of(rate)
  rate = max(LEAST, min(rate, MOST))
  local p, q = nearest(rate)
  if not p then
    q = FINEST * max(1, ceil(1 / rate))
    p = floor(rate * q)
  end
  local period = q * SECOND
  local common = gcd(period, p)
  return p / common, period / common
end

return _M
