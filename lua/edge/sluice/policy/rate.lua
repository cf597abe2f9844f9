-- Rates as exact fractions: "20r/s" is 20 requests per 1,000,000 us, "0.5r/h" is 1 per 7,200,000,000 us.

local lowest = require("sluice.limit.fraction").lowest

local floor, ceil = math.floor, math.ceil

local PERIODS = { s = 1000000, m = 60 * 1000000, h = 3600 * 1000000 } -- us
local MAX_PER_SECOND = 1000000

-- The fraction of a microsecond that a bucket keeps is below `count`, and has 31 bits in the zone.
local MAX_COUNT = 1000000000

local _M = {}

-- parse(text) -> count, period (us); or nil, err, which continues a message that begins with the rate
function _M.parse(text)
  local whole, fraction, unit = text:match("^(%d+)(%.?%d*)r/([smh])$")
  if not whole or fraction == "." then
    return nil, 'is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h'
  elseif #whole > 9 or #fraction > 7 then
    return nil, "has too many digits: write at most 9 before the point and 6 after it"
  end
  local scale = 10 ^ math.max(#fraction - 1, 0)
  local count, period = tonumber(whole) * scale + (tonumber(fraction:sub(2)) or 0), PERIODS[unit] * scale
  if count == 0 then
    return nil, 'must be more than zero: "1r/h" admits almost nothing'
  end
  if count / period * PERIODS.s > MAX_PER_SECOND then
    return nil, ("is more than %d requests a second: remove the rule to limit nothing"):format(MAX_PER_SECOND)
  end
  count, period = lowest(count, period)
  if count > MAX_COUNT then -- more than nine digits: rounded down, so that the stated bound holds
    local over = count / MAX_COUNT
    count, period = floor(count / over), ceil(period / over)
  end
  return count, period
end

return _M
