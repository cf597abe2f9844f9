-- ack: a batch has been worked on. Its messages are done, but for the failed ones, which are delayed or die.
--
-- The batch id is the fence: a batch that was reclaimed or acknowledged before is left alone. A failure that names no message
-- of the batch is ignored.
--
-- KEYS 1 leases    zset  batch ids by deadline, ms
--      2 batch     list  the batch
--      3 attempts  hash  order id -> failures, one line each: ms, tab, reason
--      4 crashes   hash  order id -> leases that ran out
--      5 delayed   zset  messages by due time, ms
--      6 dead      zset  dead order ids by time of death, ms
--      7 letters   hash  order id -> why it died, JSON; raw:<sha1> when another order's letter bears the id
--      8 guard     hash  rebuilding: the shard is held
--      9 orders    stream  the batch's entries are pending for the consumer of its id
--     10 index   zset  a line for each letter, by sale: see include/dead_letters
-- ARGV 1 batch id
--      2 failures after which a message dies
--      3 backoff after the first failure, ms; it doubles with every further one
--      4 the longest backoff, ms
--      then for each failed message: order id, "1" if it must die now, millionths of the backoff to wait, reason in one line
-- Answers 1, or 0: the batch is not leased any more, and nothing was changed.

-- include entries
-- include dead_letters

local leases, batch, attempts, crashes, delayed, dead, letters, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local orders, index = KEYS[9], KEYS[10]
local id, max_attempts, base, cap = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

if redis.call('HEXISTS', guard, 'rebuilding') == 1 then
  return redis.error_reply('HELD this shard is being rebuilt')
end
if not redis.call('ZSCORE', leases, id) then
  return 0
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local troubled = redis.call('HLEN', attempts) + redis.call('HLEN', crashes)
redis.call('ZCARD', delayed) -- these four only to fail before anything is written, should a key be of another type
redis.call('ZCARD', dead)
redis.call('HLEN', letters)
redis.call('ZCARD', index)
local entries = pending(orders, id)

local failure = {}
for i = 5, #ARGV, 4 do
  failure[ARGV[i]] = { permanent = ARGV[i + 1] == '1', jitter = tonumber(ARGV[i + 2]) / 1000000, reason = ARGV[i + 3] }
end

-- Letters go by order id. Should two orders bear one id, the second is kept beside the first, and never over it.
local function who(message)
  local head, buyer = string.match(message, '^(%d+ %S+ %d+) %d+ (.*)$')
  return head and head .. ' ' .. buyer
end
local bearer = {}
local function letter_key(order, message)
  local other = bearer[order]
  if other == nil then
    local text = redis.call('HGET', letters, order)
    local readable, letter = pcall(cjson.decode, text or '{}')
    other = text and (readable and type(letter) == 'table' and type(letter.message) == 'string' and who(letter.message) or '') or who(message)
    bearer[order] = other
  end
  return other == who(message) and order or 'raw:' .. redis.sha1hex(message)
end

local done, delays, deaths = {}, {}, {}
if #ARGV > 4 or troubled > 0 then
  for _, message in ipairs(held(batch, orders, entries)) do
    local order = string.match(message, '^(%d+) ') or ''
    local f = failure[order]
    if not f then
      done[#done + 1] = order
    else
      local history = (redis.call('HGET', attempts, order) or '') .. string.format('%d\t%s\n', now, f.reason)
      local _, count = string.gsub(history, '\n', '')
      if f.permanent or count >= max_attempts then
        deaths[#deaths + 1] = {
          order = letter_key(order, message),
          letter = cjson.encode({
            state = 'dead', message = message, reason = f.reason, history = history,
            crashes = redis.call('HGET', crashes, order) or '0', died = string.format('%d', now),
          }),
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
drop(batch, orders, id, entries)
for _, d in ipairs(delays) do
  redis.call('HSET', attempts, d.order, d.history)
  redis.call('ZADD', delayed, d.due, d.message)
end
for _, d in ipairs(deaths) do
  put_letter(dead, letters, index, d.order, d.letter, now)
end
if #done > 0 then
  redis.call('HDEL', attempts, unpack(done))
  redis.call('HDEL', crashes, unpack(done))
end
return 1
