-- dead_letters: what a shard knows of its dead orders, in three keys that change together: when each died, its letter, and a list of them by sale.
-- Scripts include this by its name; it is none itself. A script declares dead, letters and index among its KEYS, and makes sure of
-- their types before it writes.
--
-- In index, all scores are 0 and the members are in the order of their bytes, so that those of a sale stand side by side:
--
--   <sale> <1: it holds a unit, 0: it holds none> <key of the letter> <message>
--
-- What is no message belongs to no sale, and its line begins with the space. There is a line for each letter and a letter for each line, so that
-- equal numbers tell that all are there: see snapshot.

-- line_of is a letter's line. It is made of the text that is stored, and of nothing else.
local function line_of(key, text)
  local readable, letter = pcall(cjson.decode, text)
  local message = readable and type(letter) == 'table' and type(letter.message) == 'string' and letter.message or ''
  local sale = string.match(message, '^%d+ (%S+) ')
  if not sale then
    return ' 0 ' .. key
  end
  return sale .. (letter.unit == 'none' and ' 0 ' or ' 1 ') .. key .. ' ' .. message
end

-- put_letter keeps a letter, in place of another one of that key if there is one.
local function put_letter(dead, letters, index, key, text, now)
  local other = redis.call('HGET', letters, key)
  if other then
    redis.call('ZREM', index, line_of(key, other))
  end
  redis.call('ZADD', dead, now, key)
  redis.call('HSET', letters, key, text)
  redis.call('ZADD', index, 0, line_of(key, text))
end

-- drop_letter answers whether there was one.
local function drop_letter(dead, letters, index, key)
  local text = redis.call('HGET', letters, key)
  redis.call('ZREM', dead, key)
  if not text then
    return false
  end
  redis.call('HDEL', letters, key)
  redis.call('ZREM', index, line_of(key, text))
  return true
end
