-- check_swapped: ends a script of a rebuild that has swapped the queue, or of a move that has resumed the sales. This
-- run is a repetition that is executed late: orders may have been restored or sold since. The script declares guard,
-- and includes check_fence before it.

if redis.call('HGET', guard, 'swapped') == string.match(ARGV[1], '^%d+') then
  return 'ok'
end
