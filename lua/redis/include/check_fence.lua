-- check_fence: refuses to run if a later rebuild has begun or Redis was emptied. The script declares guard.

if redis.call('HGET', guard, 'fence') ~= ARGV[1] then
  return 'fenced'
end
