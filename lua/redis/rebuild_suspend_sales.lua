-- rebuild_suspend_sales: stops sales while they are rebuilt. Without version and switch nothing can be bought from a
-- sale; its other fields stay. While the shard is held, load_sale loads no sale.
--
-- KEYS 1 guard  hash  fence, deployment
--      then per sale: sale  hash
-- ARGV 1 "<fence> <deployment>"
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

local guard = KEYS[1]

-- include check_fence
for i = 2, #KEYS do
  redis.call('HDEL', KEYS[i], 'version', 'switch')
end
return 'ok'
