-- read_sale: a sale as it stands now, in one consistent look.
--
-- KEYS 1 sale      hash
--      2 stock     string  units left
-- ARGV none
-- Answers a flat array: now (ms), left, version, switch, opens_at, closes_at, per_buyer, stock in all, title, price amount,
-- currency, acceptances; an empty array when Redis does not hold the sale.

local f = redis.call('HMGET', KEYS[1], 'version', 'switch', 'opens_at', 'closes_at', 'per_buyer', 'stock', 'title', 'amount', 'currency', 'accepted')
local left = redis.call('GET', KEYS[2])
if not f[1] or not left then
  return {}
end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return { string.format('%d', now), left, f[1], f[2], f[3], f[4], f[5], f[6], f[7], f[8], f[9], f[10] }
