-- rebuild_resume_sales: lets sales be bought again after a rebuild or a move, as far as their switch and their window
-- permit.
--
-- Replay-safe: a sale with a version was resumed, and may have been changed since. One without a stock was removed. The
-- field swapped ends late repetitions of rebuild_suspend_sales, also after a move, which swaps no queue.
--
-- KEYS 1 guard  hash  fence, deployment, swapped
--      then per sale: sale  hash  stock; suspended: "<fence> <version> <switch>" (rebuild_suspend_sales)
-- ARGV 1 "<fence> <deployment>"
--      then two per sale: version, switch; both are empty for a sale that was suspended and not rebuilt
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

-- include notify

local guard, fence = KEYS[1], string.match(ARGV[1], '^%d+')

-- include check_fence
local defs = {}
for i = 2, #KEYS do
  defs[i] = redis.call('HMGET', KEYS[i], 'version', 'stock', 'suspended')
end

redis.call('HSET', guard, 'swapped', fence)
for i = 2, #KEYS do
  local version, switch = ARGV[2 * i - 2], ARGV[2 * i - 1]
  if version == '' then
    version, switch = string.match(defs[i][3] or '', '^' .. fence .. ' (%S+) (%S+)$')
  end
  if not defs[i][1] and defs[i][2] then
    redis.call('HDEL', KEYS[i], 'suspended')
    if version then
      redis.call('HSET', KEYS[i], 'version', version, 'switch', switch)
      notify(KEYS[i], 'opened', nil, version)
    end
  end
end
return 'ok'
