-- rebuild_resume_sale: lets a sale be bought again after a rebuild, as far as its switch and its window permit.
--
-- Replay-safe: a sale with a version was resumed, and may have been changed since. One without a stock was removed.
--
-- KEYS 1 guard  hash  fence, deployment
--      2 sale   hash  stock; suspended: "<fence> <version> <switch>" (rebuild_suspend_sales)
-- ARGV 1 "<fence> <deployment>"   2 version   3 switch; both are empty for a sale that was suspended and not rebuilt
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

-- include notify

local guard, sale = KEYS[1], KEYS[2]
local fence, version, switch = string.match(ARGV[1], '^%d+'), ARGV[2], ARGV[3]

-- include check_fence
local def = redis.call('HMGET', sale, 'version', 'stock')
if def[1] or not def[2] then
  return 'ok'
end
if version == '' then
  version, switch = string.match(redis.call('HGET', sale, 'suspended') or '', '^' .. fence .. ' (%S+) (%S+)$')
end

redis.call('HDEL', sale, 'suspended')
if version then
  redis.call('HSET', sale, 'version', version, 'switch', switch)
  notify(sale, 'opened', nil, version)
end
return 'ok'
