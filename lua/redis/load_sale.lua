-- load_sale: stores a sale after its buyers were stored. From then on it can be bought. A sale that Redis holds
-- already does not change, so the script is replay-safe.
--
-- KEYS 1 sale     hash
--      2 stock    string  units left
--      3 sales    set     ids of the sales in this shard
--      4 buyers   hash    buyer -> order ids by slot (include/slots)
--      5 returns  hash    order id -> number of its return, until its row has the number
--      6 guard    hash    run_id: this Redis was verified; rebuilding: a rebuild holds the shard; deployment
-- ARGV 1 version
--      2 switch
--      3 number of buyers stored before
--      4 id of the deployment of the sale (include/check_owner); empty to load into a Redis that was not verified
--      then the sale (include/write_sale)
-- Returns "loaded"; "present"; "unverified" if the data in Redis must be verified first; or "lost" if Redis lost the
--      buyers since they were stored. Or an error that begins with FOREIGN. Nothing changed after any but the first.

-- include notify
-- include write_sale

local sale, stock, sales, buyers, returns, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]

local deployment = ARGV[4]

-- include check_owner
local mark = redis.call('HMGET', guard, 'rebuilding', 'run_id')
if mark[1] or deployment ~= '' and not mark[2] then
  return 'unverified'
end
if redis.call('EXISTS', sale) == 1 and redis.call('EXISTS', stock) == 1 then
  return 'present'
end
if redis.call('HLEN', buyers) < tonumber(ARGV[3]) then
  return 'lost'
end

write_sale(sale, stock, sales, returns, 5)
redis.call('HSET', sale, 'version', ARGV[1], 'switch', ARGV[2])
notify(sale, 'opened', tonumber(ARGV[13]), ARGV[1])
return 'loaded'
