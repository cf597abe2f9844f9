-- rebuild_finish: ends a rebuild or a move. The data of this server is verified, and the shard is no longer held.
--
-- KEYS 1 guard  hash  fence, generation, run_id, deployment, shards, rebuilding, former_owner
-- ARGV 1 "<fence> <deployment>"; the fence becomes the generation   2 run_id of the server   3 number of shards
-- Returns "ok"; or "fenced" if a later rebuild has begun or Redis was emptied, and nothing changed.

local guard, fence = KEYS[1], string.match(ARGV[1], '^%d+')

-- include check_fence
redis.call('HSET', guard, 'generation', fence, 'run_id', ARGV[2], 'shards', ARGV[3])
redis.call('HDEL', guard, 'rebuilding', 'former_owner')
return 'ok'
