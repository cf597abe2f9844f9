-- move_hold: holds a verified shard for its move to another server, like a rebuild: its queue stops, nothing can be
-- bought from its sales, and new connections are not trusted. A repetition changes nothing and returns "fenced". The
-- version and the switch of the sales are in the first answer only: its client does not repeat it, and if it is lost, a
-- backend rebuilds the shard.
--
-- KEYS 1 guard  hash  fence, rebuilding, run_id, deployment
--      2 sales  set   ids of the sales in this shard
--      then per sale: sale  hash  version, switch
-- ARGV 1 fence   2 run_id of the server   3 id of the deployment
--      then per sale: its id
-- Returns a list: "ok", then version and switch of each sale. Or, and nothing changed: "fenced" if a rebuild or a move
--      with this or a later fence has begun; "foreign" if the data belongs to another deployment; "unverified" if it is
--      not verified; "stale" if the sales are others.

local guard, sales = KEYS[1], KEYS[2]

local mark = redis.call('HMGET', guard, 'fence', 'run_id', 'rebuilding', 'deployment')
if (tonumber(mark[1] or '') or 0) >= tonumber(ARGV[1]) then
  return { 'fenced' }
end
if (mark[4] or '0') ~= ARGV[3] then
  return { 'foreign' }
end
if mark[2] ~= ARGV[2] or mark[3] then
  return { 'unverified' }
end
if redis.call('SCARD', sales) ~= #KEYS - 2 then
  return { 'stale' }
end
local answer = { 'ok' }
for i = 3, #KEYS do
  if redis.call('SISMEMBER', sales, ARGV[i + 1]) == 0 then
    return { 'stale' }
  end
  local def = redis.call('HMGET', KEYS[i], 'version', 'switch')
  answer[#answer + 1], answer[#answer + 2] = def[1] or '', def[2] or ''
end

redis.call('HSET', guard, 'fence', ARGV[1], 'rebuilding', ARGV[1])
redis.call('HDEL', guard, 'run_id')
for i = 3, #KEYS do
  redis.call('HDEL', KEYS[i], 'version', 'switch')
end
return answer
