-- check_fence: refuses to run if a later rebuild has begun, another deployment has begun to use the data, or Redis was
-- emptied. ARGV 1 is "<fence> <id of the deployment>": two deployments number their rebuilds independently. The script
-- declares guard.

local mark = redis.call('HMGET', guard, 'fence', 'deployment')
if (mark[1] or '') .. ' ' .. (mark[2] or '0') ~= ARGV[1] then
  return 'fenced'
end
