-- dead_drop: deletes the letter of a text that is not a message. No order and no stock depend on it.
--
-- KEYS 1 dead     zset  keys of dead letters by the time they were added, ms
--      2 letters  hash  key -> dead letter, JSON
--      3 index    zset  dead letters by sale (include/dead_letters)
--      4 guard    hash  rebuilding: a rebuild or a move holds the shard
-- ARGV 1 key of the letter
-- Returns 1; or 0 if the letter does not exist.

-- include dead_letters

local dead, letters, index, guard = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- include check_shard
check_letter_types(dead, letters, index)
return drop_letter(dead, letters, index, ARGV[1]) and 1 or 0
