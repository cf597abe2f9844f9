-- move_release: ends the hold of a move. The data of this server is verified, and the sales can be bought as far as
-- their switch and their window permit. Replay-safe.
--
-- KEYS 1 guard  hash  fence, rebuilding, run_id, generation, swapped, deployment, shards
--      then per sale: sale  hash  version, switch
-- ARGV 1 fence, which becomes the generation   2 run_id of the server   3 id of the deployment   4 number of shards
--      then version and switch of each sale; a sale that had no version has none again
-- Returns "ok"; or "fenced" if the shard is not held with this fence or by another deployment, and nothing changed.

-- include notify

local guard = KEYS[1]

local mark = redis.call('HMGET', guard, 'fence', 'rebuilding', 'run_id', 'generation', 'deployment')
if (mark[5] or '0') ~= ARGV[3] then
  return 'fenced'
end
if mark[3] == ARGV[2] and mark[4] == ARGV[1] then
  return 'ok'
end
if mark[1] ~= ARGV[1] or mark[2] ~= ARGV[1] then
  return 'fenced'
end

for i = 2, #KEYS do
  local version, switch = ARGV[2 * i + 1], ARGV[2 * i + 2]
  if version ~= '' then
    redis.call('HSET', KEYS[i], 'version', version, 'switch', switch)
    notify(KEYS[i], 'opened', nil, version)
  end
end
redis.call('HSET', guard, 'generation', ARGV[1], 'swapped', ARGV[1], 'run_id', ARGV[2], 'deployment', ARGV[3],
  'shards', ARGV[4])
redis.call('HDEL', guard, 'rebuilding')
return 'ok'
