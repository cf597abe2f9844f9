-- check_owner: refuses to run for a process of another deployment than the data. The script declares guard, and
-- deployment: the id of the process's deployment, 0 or empty if it is not known.

if deployment ~= '' and deployment ~= '0' and (redis.call('HGET', guard, 'deployment') or '0') ~= deployment then
  return redis.error_reply('FOREIGN this shard belongs to another deployment')
end
