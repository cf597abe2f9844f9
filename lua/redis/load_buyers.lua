-- load_buyers: stores buyers of a sale that load_sale will load. Buyers that the key has do not change, so the script
-- is replay-safe, and cannot overwrite purchases.
--
-- KEYS 1 buyers  hash  buyer -> order ids by slot (include/slots)
--      2 guard   hash  rebuilding: a rebuild holds the shard; deployment
-- ARGV 1 id of the deployment of the sale (include/check_owner)
--      then two per buyer: buyer, slots
-- Returns "ok"; or an error that begins with HELD or FOREIGN, and nothing changed.

local buyers, guard, deployment = KEYS[1], KEYS[2], ARGV[1]

-- include check_shard
-- include check_owner
for i = 2, #ARGV, 2 do
  redis.call('HSETNX', buyers, ARGV[i], ARGV[i + 1])
end
return 'ok'
