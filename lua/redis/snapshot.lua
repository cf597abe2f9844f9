-- snapshot: copies the queue of a shard at one instant, and returns the totals of its sales at that instant.
--
-- Redis copies a list of 800,000 orders in 30 ms; reading it in a script takes seconds. The caller reads the copies
-- in small pieces, and they expire. Of the dead letters, the script copies the lines of these sales that hold a unit
-- and counts the others (include/dead_letters).
--
-- KEYS 1 ready           list
--      2 delayed         zset
--      3 letters         hash    dead letters
--      4 leases          zset
--      5 copy of ready   list
--      6 copy of delayed zset
--      7 index           zset    dead letters by sale
--      8 orders          stream
--      9 copy of orders  stream
--      then two per batch: the batch, its copy
--      then five per sale: sale, stock, returns, copy of its returns, copy of its lines
-- ARGV 1 prefix of the key of a batch   2 lifetime of the copies, ms   3 number of batches
--      then the ids of the sales
-- Returns "stale" alone if a leased batch is not among KEYS, or "unlisted" alone if letters and lines differ in
--      number, and nothing changed. Else nine per sale: number of lines copied, number of its other lines, number of
--      its returns, number of the last return, stock, units left, orders accepted, version of the allocation and units
--      of the outgoing transfer of a segment ('0' otherwise); stock, units left and orders accepted are empty if Redis
--      does not hold the sale; the number of its returns is an error if a key of the sale has the wrong type. Then the
--      number of entries of the stream that are leased, which are its first ones, and the number of copies.

-- include stream

local ready, delayed, letters, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ready_copy, delayed_copy, index, orders, orders_copy = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local prefix, ttl, batches = ARGV[1], ARGV[2], tonumber(ARGV[3])
local first_sale = 10 + 2 * batches

local declared = {}
for i = 10, first_sale - 1, 2 do
  declared[KEYS[i]] = true
end
for _, batch in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  if not declared[prefix .. batch] then
    return { 'stale' }
  end
end
if redis.call('ZCARD', index) ~= redis.call('HLEN', letters) then
  return { 'unlisted' }
end

-- copy replaces the copy that an earlier run of the same call may have made. COPY alone would leave it in place if the
-- source no longer exists.
local copies = 0
local function copy(from, to)
  redis.call('DEL', to)
  if redis.call('COPY', from, to) == 1 then
    redis.call('PEXPIRE', to, ttl)
    copies = copies + 1
  end
end

-- lines_of returns the bounds of the lines of one sale in the index. "!" is the byte after the space.
local function lines_of(sale, unit)
  return '[' .. sale .. unit, '(' .. sale .. string.sub(unit, 1, -2) .. '!'
end

-- copy_lines copies the lines of letters that hold a unit. The embedded Redis has no ZRANGESTORE; like Redis before
-- 7, it does not report a version.
local function copy_lines(sale, to)
  local from, till = lines_of(sale, ' 1 ')
  local n
  if redis.REDIS_VERSION_NUM then
    n = redis.call('ZRANGESTORE', to, index, from, till, 'BYLEX')
  else
    local lines = redis.call('ZRANGEBYLEX', index, from, till)
    n = #lines
    redis.call('DEL', to)
    for _, line in ipairs(lines) do
      redis.call('ZADD', to, 0, line)
    end
  end
  if n > 0 then
    redis.call('PEXPIRE', to, ttl)
    copies = copies + 1
  end
  return tostring(n)
end

-- failure returns the error of a reply of pcall, or nil.
local function failure(reply)
  return type(reply) == 'table' and reply.err or nil
end

local answer, n = {}, 0
for i = first_sale, #KEYS, 5 do
  local f = redis.pcall('HMGET', KEYS[i], 'stock', 'accepted', 'returned', 'allocation', 'out')
  local left, returns = redis.pcall('GET', KEYS[i + 1]), redis.pcall('HLEN', KEYS[i + 2])
  local failed = failure(f) or failure(left) or failure(returns)
  if failed then
    f, left, returns = {}, false, failed
  end
  local sale = ARGV[4 + n / 9]
  answer[n + 1] = copy_lines(sale, KEYS[i + 4])
  answer[n + 2] = tostring(redis.call('ZLEXCOUNT', index, lines_of(sale, ' 0 ')))
  answer[n + 3], answer[n + 4] = tostring(returns), f[3] or '0'
  answer[n + 5], answer[n + 6], answer[n + 7] = f[1] or '', left or '', f[2] or ''
  answer[n + 8], answer[n + 9] = f[4] or '0', string.match(f[5] or '', '^%d+') or '0'
  copy(KEYS[i + 2], KEYS[i + 3])
  n = n + 9
end
copy(ready, ready_copy)
copy(delayed, delayed_copy)
for i = 10, first_sale - 1, 2 do
  copy(KEYS[i], KEYS[i + 1])
end

-- copy_entries copies a stream entry by entry, for the embedded Redis: its COPY would share the entries.
local function copy_entries(from, to)
  local after = '-'
  repeat
    local entries = redis.call('XRANGE', from, after, '+', 'COUNT', 1000)
    for i = 1, #entries do
      redis.call('XADD', to, entries[i][1], 'm', entry_text(entries[i]))
    end
    after = #entries > 0 and '(' .. entries[#entries][1]
  until not after
  redis.call('PEXPIRE', to, ttl)
  copies = copies + 1
end
local leased = 0
redis.call('DEL', orders_copy)
if redis.call('XLEN', orders) > 0 then
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', orders)) do
    local fields = {}
    for i = 1, #info, 2 do
      fields[info[i]] = info[i + 1]
    end
    if fields['name'] == group then
      leased = fields['pending']
    end
  end
  if redis.REDIS_VERSION_NUM then
    copy(orders, orders_copy)
  else
    copy_entries(orders, orders_copy)
  end
end
answer[n + 1], answer[n + 2] = tostring(leased), tostring(copies)
return answer
