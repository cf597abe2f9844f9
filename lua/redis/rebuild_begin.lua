-- rebuild_begin: holds a shard for the rebuild or the move with this fence. Its queue stops, and new connections are
-- not trusted. The data belongs to the deployment of the rebuild from then on. A repetition changes nothing: each
-- rebuild has its own fence.
--
-- KEYS 1 guard       hash  fence, rebuilding, run_id, deployment; former_owner: id of the deployment from which the
--                          data was taken over, 0 if it is not known, until a rebuild ends
--      2 unfinished  list  the queue that an interrupted rebuild left
--      3 consumers   hash  deleted when a deployment takes the data over: workers of the former owner cannot register
--                          again (register_consumer)
--      4 sales       set   if there are any and the guard is missing, a former owner may use them
-- ARGV 1 "<fence> <id of the deployment>"   2 run_id with which the shard must have been verified; empty: any
--      3 id of the deployment from which the data is taken over, 0 for data without an id; empty: none
-- Returns "ok" or, while there is a former owner, "taken_over": its processes may not have noticed yet. Or nothing
--      changed, and "foreign" if the data belongs to a third deployment, "fenced" if a later rebuild has begun, or
--      "unverified".

local guard, unfinished, consumers, sales = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local fence, deployment = string.match(ARGV[1], '^(%d+) (%d+)$')

local newest, former, drop_consumers = tonumber(redis.call('HGET', guard, 'fence') or '') or 0, nil, false
if redis.call('EXISTS', guard) == 1 then
  local owner = redis.call('HGET', guard, 'deployment') or '0'
  if not string.find(owner, '^[1-9]%d*$') or #owner > 19 or #owner == 19 and owner > '9223372036854775807' then
    owner = '0' -- not a valid id
  end
  if owner ~= deployment then
    if owner ~= ARGV[3] then
      return 'foreign'
    end
    former, drop_consumers = owner, true
    newest = newest + 1 -- the fences of two deployments can be equal
  elseif newest == tonumber(fence) then
    return redis.call('HEXISTS', guard, 'former_owner') == 1 and 'taken_over' or 'ok'
  end
else
  drop_consumers = true -- the former owner is not known
  former = redis.call('EXISTS', sales) == 1 and '0' or nil
end
if newest > tonumber(fence) then
  return 'fenced'
end
if ARGV[2] ~= '' and redis.call('HGET', guard, 'run_id') ~= ARGV[2] then
  return 'unverified'
end

redis.call('HSET', guard, 'fence', fence, 'rebuilding', fence, 'deployment', deployment)
redis.call('HDEL', guard, 'run_id')
redis.call('UNLINK', unfinished)
if drop_consumers then
  redis.call('UNLINK', consumers)
end
if former then
  redis.call('HSET', guard, 'former_owner', former)
end
return redis.call('HEXISTS', guard, 'former_owner') == 1 and 'taken_over' or 'ok'
