-- read_sale: reads a sale at one instant.
--
-- KEYS 1 sale   hash
--      2 stock  string  units left
-- ARGV none
-- Returns now (ms), units left, version, switch, opens_at, closes_at, per_buyer, stock, title, price amount, currency,
--      orders accepted; or nothing if Redis does not hold the sale.

-- include clock

local sale, stock = KEYS[1], KEYS[2]

local f = redis.call('HMGET', sale, 'version', 'switch', 'opens_at', 'closes_at', 'per_buyer', 'stock', 'title',
  'amount', 'currency', 'accepted')
local left = redis.call('GET', stock)
if not f[1] or not left then
  return {}
end
return { string.format('%d', now_ms()), left, f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9], f[10] }
