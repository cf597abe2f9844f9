-- remove_sale: deletes a sale, or its segment in this shard.
--
-- A shard that a rebuild or a move holds is not changed: the rebuild would store the sale again.
--
-- KEYS 1 sale     hash
--      2 stock    string
--      3 buyers   hash
--      4 returns  hash
--      5 sales    set     ids of the sales in this shard
--      6 guard    hash    rebuilding: a rebuild holds the shard; deployment
-- ARGV 1 sale id   2 id of the deployment in SQL (include/check_owner)
-- Returns 1. Or an error that begins with HELD or FOREIGN, and nothing changed.

local sale, stock, buyers, returns, sales, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local deployment = ARGV[2]

-- include check_shard
-- include check_owner
redis.call('SREM', sales, ARGV[1])
redis.call('UNLINK', sale, stock, buyers, returns) -- large keys: Redis frees them in the background
return 1
