-- register_consumer: assigns a number to a consumer, which leases batches one after the other.
--
-- Every execution assigns another number, so a repetition, however late, registers a consumer that leases nothing. The
-- key holds the consumers with the highest numbers. A consumer that was removed gets "unregistered" from take, and
-- registers again.
--
-- KEYS 1 consumers hash  number of a consumer -> id of its last batch, <name>-<number>-<n>; last -> the last number
--      2 guard     hash  rebuilding: a rebuild holds the shard; deployment
-- ARGV 1 name of the consumer, which no other registration has
--      2 largest number of consumers to keep
--      3 id of the deployment that the consumer belongs to, 0 if it is not known
-- Returns the number; or an error that begins with HELD, or with FOREIGN if the data belongs to another deployment.

local consumers, guard = KEYS[1], KEYS[2]
local name, most, deployment = ARGV[1], tonumber(ARGV[2]), ARGV[3]

-- include check_shard
-- include check_owner
local number = (tonumber(redis.call('HGET', consumers, 'last') or '') or 0) + 1

redis.call('HDEL', consumers, string.format('%d', number - most)) -- first: Redis with full memory accepts it
redis.call('HSET', consumers, 'last', number, number, name .. '-' .. number .. '-0')
return number
