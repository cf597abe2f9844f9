-- dead_letters: the dead letters of a shard, in three keys that change together: dead (the time at which a letter was
-- added), letters (the letter as JSON) and index (one line per letter, sorted by sale).
--
-- A letter has the fields state ("dead" or "cancelling"), unit ("none": it holds no unit), message or raw, reason,
-- history, crashes and died. In index all scores are 0, so the lines of one sale are adjacent:
--
--   <sale> <1: holds a unit, 0: holds none> <key of the letter> <message>
--
-- A text that is not a message belongs to no sale, and its line begins with the space. Every letter has one line, so
-- equal counts show that the index is complete: see snapshot.

-- message_of returns the message of a letter, or ''.
local function message_of(text)
  local readable, letter = pcall(cjson.decode, text)
  if readable and type(letter) == 'table' and type(letter.message) == 'string' then
    return letter.message, letter.unit
  end
  return ''
end

-- index_line returns the line of a letter. It depends on the stored text alone.
local function index_line(key, text)
  local message, unit = message_of(text)
  local sale = string.match(message, '^%d+ (%S+) ')
  if not sale then
    return ' 0 ' .. key
  end
  return sale .. (unit == 'none' and ' 0 ' or ' 1 ') .. key .. ' ' .. message
end

-- order_identity returns a message without its serial; two messages of one order differ in nothing else.
local function order_identity(message)
  local head, buyer = string.match(message, '^(%d+ %S+ %d+) %d+ (.*)$')
  return head and head .. ' ' .. buyer
end

-- letter_key returns the key for the letter of a message: the order id, or raw:<sha1> if another order with the same
-- id has a letter. owners remembers the results of one run by order id.
local function letter_key(letters, owners, order, message)
  local owner = owners[order]
  if owner == nil then
    local text = redis.call('HGET', letters, order)
    owner = text and (order_identity(message_of(text)) or '') or order_identity(message)
    owners[order] = owner
  end
  return owner == order_identity(message) and order or 'raw:' .. redis.sha1hex(message)
end

-- encode_letter returns a new letter as JSON.
local function encode_letter(letter, now)
  letter.state, letter.died = 'dead', string.format('%d', now)
  letter.history, letter.crashes = letter.history or '', letter.crashes or '0'
  return cjson.encode(letter)
end

-- find_letter returns the letter of an order in this state; or nil, and 0 if the order has no letter or -1 if the
-- letter has another state.
local function find_letter(letters, id, state)
  local text = redis.call('HGET', letters, id)
  if not text then
    return nil, 0
  end
  local letter = cjson.decode(text)
  if letter.state ~= state then
    return nil, -1
  end
  return letter
end

-- check_letter_types fails, before anything is written, if a key has the wrong type.
local function check_letter_types(dead, letters, index)
  redis.call('ZCARD', dead)
  redis.call('HLEN', letters)
  redis.call('ZCARD', index)
end

-- put_letter stores a letter and replaces one with the same key.
local function put_letter(dead, letters, index, key, text, now)
  local other = redis.call('HGET', letters, key)
  if other then
    redis.call('ZREM', index, index_line(key, other))
  end
  redis.call('ZADD', dead, now, key)
  redis.call('HSET', letters, key, text)
  redis.call('ZADD', index, 0, index_line(key, text))
end

-- drop_letter deletes a letter. It returns whether the letter existed.
local function drop_letter(dead, letters, index, key)
  local text = redis.call('HGET', letters, key)
  redis.call('ZREM', dead, key)
  if not text then
    return false
  end
  redis.call('HDEL', letters, key)
  redis.call('ZREM', index, index_line(key, text))
  return true
end
