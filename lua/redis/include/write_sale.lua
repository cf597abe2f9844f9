-- write_sale: the fields of a sale that load_sale and rebuild_sale store. Both pass these arguments from ARGV[first]:
--
--   sale id, opens_at (ms), closes_at (ms, 0: never), per_buyer, stock, title, price amount, currency, units left,
--   orders accepted so far, the segment "<index>/<spread>" or '', the version of its allocation (then stock is the
--   units of the allocation), the number of the last return in SQL, then the ids of cancelled orders with a unit that
--   is part of the units left and a row without the number of the return

-- write_sale stores the sale and restarts the numbering of returns. Numbers start at the clock in microseconds: that
-- exceeds every number that an earlier Redis assigned, and the audit compares numbers with those in SQL. If the clock
-- was set back, they start a million above the last number that Redis or SQL has, because both may lack some.
local function write_sale(sale, stock, sales, returns, first)
  local time = redis.call('TIME')
  local number = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local last = math.max(tonumber(redis.call('HGET', sale, 'returned') or '') or 0, tonumber(ARGV[first + 12]))
  if number <= last then
    number = last + 1000000
  end
  local returned = string.format('%d', number)
  redis.call('DEL', returns)
  redis.call('HSET', sale, 'opens_at', ARGV[first + 1], 'closes_at', ARGV[first + 2], 'per_buyer', ARGV[first + 3],
    'stock', ARGV[first + 4], 'title', ARGV[first + 5], 'amount', ARGV[first + 6], 'currency', ARGV[first + 7],
    'accepted', ARGV[first + 9], 'returned', returned)
  redis.call('HDEL', sale, 'segment', 'allocation', 'out') -- SQL decides whether an outgoing transfer is committed
  if ARGV[first + 10] ~= '' then
    redis.call('HSET', sale, 'segment', ARGV[first + 10], 'allocation', ARGV[first + 11])
  end
  redis.call('SET', stock, ARGV[first + 8])
  redis.call('SADD', sales, ARGV[first])
  for i = first + 13, #ARGV do
    redis.call('HSET', returns, ARGV[i], returned)
  end
end
