-- load_buyers: stores buyers of a sale that load_sale will load. It does not change buyers that the key has already, so
-- the script is replay-safe. It changes nothing if another process has loaded the sale: orders may have been cancelled
-- since the caller read them, and would keep their slots.
--
-- KEYS 1 buyers  hash    buyer -> order ids by slot (include/slots)
--      2 guard   hash    rebuilding: a rebuild holds the shard; deployment
--      3 sale    hash
--      4 stock   string  units left
-- ARGV 1 id of the deployment of the sale (include/check_owner)
--      then two per buyer: buyer, slots
-- Returns "ok". Or nothing changed: "present" if Redis holds the sale, or an error that begins with HELD or FOREIGN.

local buyers, guard, sale, stock, deployment = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

-- include check_shard
-- include check_owner
if redis.call('EXISTS', sale) == 1 and redis.call('EXISTS', stock) == 1 then
  return 'present'
end
for i = 2, #ARGV, 2 do
  redis.call('HSETNX', buyers, ARGV[i], ARGV[i + 1])
end
return 'ok'
