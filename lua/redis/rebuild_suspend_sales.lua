-- rebuild_suspend_sales: take sales off the market while they are rebuilt. Without version and switch nothing can be bought from a sale, and
-- nothing can be
-- loaded in its place while the shard is held; what else is known of it stays.
--
-- KEYS 1 guard  hash  fence
--      2.. sale hash
-- ARGV 1 fence
-- Answers "ok", or "fenced": this rebuild has been overtaken, or Redis was emptied, and nothing has changed.

if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then
  return 'fenced'
end
for i = 2, #KEYS do
  redis.call('HDEL', KEYS[i], 'version', 'switch')
end
return 'ok'
