-- rebuild_finish: end a rebuild. This Redis is the verified one from here on, and the shard is no longer held.
--
-- KEYS 1 guard  hash
-- ARGV 1 fence, which becomes the generation   2 run_id of the server   3 how many shards there are
-- Answers "ok", or "fenced", as rebuild_hold.

if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then
  return 'fenced'
end
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'run_id', ARGV[2], 'shards', ARGV[3])
redis.call('HDEL', KEYS[1], 'rebuilding')
return 'ok'
