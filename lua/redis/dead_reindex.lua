-- dead_reindex: makes the index of dead letters agree with some of the letters, after the shard has lost one of the two
-- keys.
--
-- KEYS 1 letters  hash  key -> dead letter, JSON
--      2 index    zset  dead letters by sale (include/dead_letters)
-- ARGV 1 "letters": the rest are keys of letters; their missing lines are added
--        "lines": the rest are lines, which are deleted if they have no letter
-- Returns the number of lines added or deleted.

-- include dead_letters

local letters, index = KEYS[1], KEYS[2]

local changed = 0
for i = 2, #ARGV do
  if ARGV[1] == 'letters' then
    local text = redis.call('HGET', letters, ARGV[i])
    changed = changed + (text and redis.call('ZADD', index, 0, index_line(ARGV[i], text)) or 0)
  else
    local key = string.match(ARGV[i], '^ 0 (.*)$') or string.match(ARGV[i], '^%S+ %d (%S+)') or ''
    local text = redis.call('HGET', letters, key)
    if not text or index_line(key, text) ~= ARGV[i] then
      changed = changed + redis.call('ZREM', index, ARGV[i])
    end
  end
end
return changed
