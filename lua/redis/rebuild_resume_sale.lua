-- rebuild_resume_sale: let a sale that was rebuilt be bought again, as far as its switch and its window allow.
--
-- KEYS 1 guard  hash  fence
--      2 sale   hash
-- ARGV 1 fence   2 version   3 switch
-- Answers "ok", or "fenced", as rebuild_hold.

if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then
  return 'fenced'
end
redis.call('HSET', KEYS[2], 'version', ARGV[2], 'switch', ARGV[3])
local prefix, sale_id = string.match(KEYS[2], '^(.-)sale:(.*)$')
redis.pcall('PUBLISH', prefix .. 'sale_notifications', string.format('{"v":1,"type":"opened","sale":"%s","version":%s}', sale_id, ARGV[2]))
return 'ok'
