-- dead_reindex: make the list of dead letters by sale agree with some letters. An older version, which kept no such list, may have put letters
-- there or
-- taken some away.
--
-- KEYS 1 letters  hash  order id -> why it died, JSON
--      2 index  zset  a line for each letter, by sale: see include/dead_letters
-- ARGV 1 "letters": the rest are keys of letters, whose lines are to be there
--        "lines": the rest are lines, of which those are removed that have no letter
-- Answers how many lines were put there or removed.

-- include dead_letters

local letters, index = KEYS[1], KEYS[2]

local changed = 0
for i = 2, #ARGV do
  if ARGV[1] == 'letters' then
    local text = redis.call('HGET', letters, ARGV[i])
    changed = changed + (text and redis.call('ZADD', index, 0, line_of(ARGV[i], text)) or 0)
  else
    local key = string.match(ARGV[i], '^ 0 (.*)$') or string.match(ARGV[i], '^%S+ %d (%S+)') or ''
    local text = redis.call('HGET', letters, key)
    if not text or line_of(key, text) ~= ARGV[i] then
      changed = changed + redis.call('ZREM', index, ARGV[i])
    end
  end
end
return changed
