-- dead_drop: remove a text that is no message from the dead letters. No order and no stock depend on it.
--
-- KEYS 1 dead     zset  dead order ids by time of death, ms
--      2 letters  hash  order id -> why it died, JSON
--      3 index  zset  a line for each letter, by sale: see include/dead_letters
-- ARGV 1 key of the letter
-- Answers 1, or 0: there is no such letter.

-- include dead_letters

local dead, letters, index = KEYS[1], KEYS[2], KEYS[3]

redis.call('ZCARD', dead) -- these two only to fail before anything is written, should a key be of another type
redis.call('ZCARD', index)
return drop_letter(dead, letters, index, ARGV[1]) and 1 or 0
