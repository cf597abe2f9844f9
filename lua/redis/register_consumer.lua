-- register_consumer: numbers a consumer, which leases batches one after the other.
--
-- Every execution assigns another number, so a repetition, however late, registers a consumer that leases nothing. The
-- key holds the consumers with the highest numbers: a live consumer that was removed registers again.
--
-- KEYS 1 consumers hash  number of a consumer -> id of its last batch, <name>-<number>-<n>; last -> the last number
--      2 guard     hash  rebuilding: a rebuild holds the shard
-- ARGV 1 name of the consumer, which no other registration has
--      2 largest number of consumers to keep
-- Returns the number.

local consumers, guard = KEYS[1], KEYS[2]
local name, most = ARGV[1], tonumber(ARGV[2])

-- include check_shard
local number = (tonumber(redis.call('HGET', consumers, 'last') or '') or 0) + 1

redis.call('HDEL', consumers, string.format('%d', number - most)) -- first: Redis with full memory accepts it
redis.call('HSET', consumers, 'last', number, number, name .. '-' .. number .. '-0')
return number
