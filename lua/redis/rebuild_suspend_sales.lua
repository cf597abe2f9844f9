-- rebuild_suspend_sales: stops all sales of a shard while it is rebuilt or moved. Without version and switch nothing
-- can be bought from a sale; its other fields stay. While the shard is held, load_sale loads no sale.
--
-- KEYS 1 guard  hash  fence, deployment
--      then per sale: sale  hash  version, switch; suspended: "<fence> <version> <switch>" from before, for
--                                 rebuild_resume_sales
-- ARGV 1 "<fence> <deployment>"
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

local guard, fence = KEYS[1], string.match(ARGV[1], '^%d+')

-- include check_fence
-- include check_swapped
local defs = {}
for i = 2, #KEYS do
  defs[i] = redis.call('HMGET', KEYS[i], 'version', 'switch')
end

for i = 2, #KEYS do
  local version, switch = defs[i][1], defs[i][2]
  if version and switch then
    redis.call('HSET', KEYS[i], 'suspended', fence .. ' ' .. version .. ' ' .. switch)
  end
  redis.call('HDEL', KEYS[i], 'version', 'switch')
end
return 'ok'
