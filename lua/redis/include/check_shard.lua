-- check_shard: refuses to run while a rebuild holds the shard. The script declares guard.

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
