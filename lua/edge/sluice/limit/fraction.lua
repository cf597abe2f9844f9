-- Converts a rate, a Lua number, to a fraction: 200 is 1 request in 5,000 us, 1/60 is 1 in 60,000,000.

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local SECOND = 1000000 -- us
-- Requests per second. Above MAX_RATE a clock of microseconds shows no limit. MIN_RATE is one request
-- in 31 years; far below it, the numbers exceed 2^53.
local MAX_RATE, MIN_RATE = 1e12, 1e-9

-- The largest denominator: it covers 1/86400 and all rates with five decimals.
local MAX_DENOMINATOR = 100000

local _M = {}

-- lowest(p, q) -> p / q in lowest terms
local function lowest(p, q)
  local common, rest = q, p
  while rest > 0 do
    common, rest = rest, common % rest
  end
  return p / common, q / common
end

_M.lowest = lowest

-- nearest(x) -> p, q with p / q == x, by continued fractions; or nil
local function nearest(x)
  local p, q, p_before, q_before = 1, 0, 0, 1
  local rest = x
  repeat
    local whole = floor(rest)
    p, p_before = whole * p + p_before, p
    q, q_before = whole * q + q_before, q
    if q > MAX_DENOMINATOR then
      return nil
    end
    if p / q == x then
      return p, q
    end
    rest = 1 / (rest - whole)
  until false
end

-- of(rate) -> count, period: count requests in period us, in lowest terms. rate: requests per second, above 0. A rate
-- that is no such fraction is rounded down, so that its bound holds.
function _M.of(rate)
  rate = max(MIN_RATE, min(rate, MAX_RATE))
  local p, q = nearest(rate)
  if not p then
    q = MAX_DENOMINATOR * max(1, ceil(1 / rate))
    p = floor(rate * q)
  end
  return lowest(p, q * SECOND)
end

return _M
