-- segment: the segment of a sale that a shard holds (backend/spread). The field segment of a sale is
-- "<index>/<spread>"; a sale in one shard has none.

-- first_serial returns the number below the first serial of a segment. Serials of different segments of a sale differ:
-- 2^40 orders fit a segment, and 1000 segments fit a Lua number.
local function first_serial(segment)
  return tonumber(string.match(segment or '', '^%d+') or 0) * 1099511627776
end
