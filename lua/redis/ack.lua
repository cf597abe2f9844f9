-- ack: ends a batch. Its messages are done; those that failed are delayed or become dead letters.
--
-- The batch id is the fence: a batch that was reclaimed or acknowledged before does not change. A failure whose order
-- is not in the batch is ignored.
--
-- KEYS 1 leases    zset    batch ids by deadline, ms
--      2 batch     list    the batch
--      3 attempts  hash    order id -> failures, one line each: ms, tab, reason
--      4 crashes   hash    order id -> number of expired leases
--      5 delayed   zset    messages by due time, ms
--      6 dead      zset    keys of dead letters by the time they were added, ms
--      7 letters   hash    key -> dead letter, JSON
--      8 guard     hash    rebuilding: a rebuild holds the shard
--      9 orders    stream  entries of the batch are pending for the consumer with its id
--     10 index     zset    dead letters by sale (include/dead_letters)
-- ARGV 1 batch id
--      2 number of failures after which a message becomes a dead letter
--      3 backoff after the first failure, ms; it doubles with every further one
--      4 longest backoff, ms
--      then four per failed message: order id, "1" for a dead letter now, millionths of the backoff to wait, and
--        the reason in one line
-- Returns 1; or 0 if the batch is not leased, and nothing changed.

-- include clock
-- include stream
-- include dead_letters

local leases, batch, attempts, crashes, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, letters, guard, orders, index = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local id, max_attempts, base, cap = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- include check_shard
if not redis.call('ZSCORE', leases, id) then
  return 0
end

local now = now_ms()
local history_size = redis.call('HLEN', attempts) + redis.call('HLEN', crashes)
redis.call('ZCARD', delayed) -- fails before anything is written if the key has the wrong type
check_letter_types(dead, letters, index)
local entries = leased_entries(orders, id)

local failure = {}
for i = 5, #ARGV, 4 do
  local permanent, jitter = ARGV[i + 1] == '1', tonumber(ARGV[i + 2]) / 1000000
  failure[ARGV[i]] = { permanent = permanent, jitter = jitter, reason = ARGV[i + 3] }
end

local done, delays, deaths, owners = {}, {}, {}, {}
if #ARGV > 4 or history_size > 0 then
  for _, message in ipairs(batch_messages(batch, orders, entries)) do
    local order = string.match(message, '^(%d+) ') or ''
    local f = failure[order]
    if not f then
      done[#done + 1] = order
    else
      local history = (redis.call('HGET', attempts, order) or '') .. string.format('%d\t%s\n', now, f.reason)
      local _, count = string.gsub(history, '\n', '')
      if f.permanent or count >= max_attempts then
        local crashed = redis.call('HGET', crashes, order) or '0'
        deaths[#deaths + 1] = {
          key = letter_key(letters, owners, order, message),
          letter = encode_letter({ message = message, reason = f.reason, history = history, crashes = crashed }, now),
        }
        done[#done + 1] = order
      else
        local wait = math.floor(math.min(cap, base * 2 ^ (count - 1)) * f.jitter)
        delays[#delays + 1] = { order = order, message = message, history = history, due = now + wait }
      end
    end
  end
end

redis.call('ZREM', leases, id)
end_batch(batch, orders, id, entries)
for _, d in ipairs(delays) do
  redis.call('HSET', attempts, d.order, d.history)
  redis.call('ZADD', delayed, d.due, d.message)
end
for _, d in ipairs(deaths) do
  put_letter(dead, letters, index, d.key, d.letter, now)
end
if #done > 0 then
  redis.call('HDEL', attempts, unpack(done))
  redis.call('HDEL', crashes, unpack(done))
end
return 1
