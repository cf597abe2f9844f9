-- dead_drop: remove a text that is no message from the dead letters. No order and no stock depend on it.
--
-- KEYS 1 dead     zset  dead order ids by time of death, ms
--      2 letters  hash  order id -> why it died, JSON
--      3 by_sale  zset  a line for each letter, by sale: see include/letters
-- ARGV 1 key of the letter
-- Answers 1, or 0: there is no such letter.

-- include letters

local dead, letters, by_sale = KEYS[1], KEYS[2], KEYS[3]

redis.call('ZCARD', dead) -- these two only to fail before anything is written, should a key be of another type
redis.call('ZCARD', by_sale)
return drop_letter(dead, letters, by_sale, ARGV[1]) and 1 or 0
