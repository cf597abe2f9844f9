-- snapshot: keep the queue of a shard as it is at this instant, and tell what its sales count at the same instant.
--
-- The queue is copied, not read: Redis copies a list of 800,000 orders in 30 ms, and reading it in a script takes seconds. The copies
-- are then read in pieces, and vanish by themselves. Of the dead letters only the lines of these sales are copied that
-- hold a unit, of which there are no more than units; the others are counted. See include/dead_letters.
--
-- KEYS 1 ready  2 delayed  3 dead:letters  4 leases  5, 6 the copies of the first two  7 dead:sales, their lines  8 orders, the stream  9 its copy
--      then for each batch two: the batch and its copy
--      then for each sale five: the sale, its stock, its returns, the copy of its returns and that of its lines
-- ARGV 1 what the key of every batch begins with   2 how long the copies are kept, ms   3 number of batches
--      then the ids of the sales
-- Answers "stale" alone when there is a lease whose batch was not declared, or "unlisted" alone when there are letters without a line or lines
-- without a letter, and nothing has changed; else for each sale six: the number of its lines that were copied, that of the others, the number of the
-- last unit taken back, and stock in all, left and acceptances, empty when Redis does not hold the sale; and last the id up to which the entries of
-- the stream are leased, empty if none are.

-- include entries

local leases = KEYS[4]
local prefix, ttl, batches = ARGV[1], ARGV[2], tonumber(ARGV[3])
local first_sale = 10 + 2 * batches
local orders = KEYS[8]

local declared = {}
for i = 10, first_sale - 1, 2 do
  declared[KEYS[i]] = true
end
for _, batch in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  if not declared[prefix .. batch] then
    return { 'stale' }
  end
end
local index = KEYS[7]
if redis.call('ZCARD', index) ~= redis.call('HLEN', KEYS[3]) then
  return { 'unlisted' }
end

-- What the copy of a first run whose answer was lost holds, is gone first: COPY leaves it where there is nothing to copy any more.
local function copy(from, to)
  redis.call('DEL', to)
  if redis.call('COPY', from, to) == 1 then
    redis.call('PEXPIRE', to, ttl)
  end
end

-- The embedded Redis has no ZRANGESTORE. It does not tell its version, nor does a Redis before 7, and is read.
local function lines_of(sale, unit)
  return '[' .. sale .. unit, '(' .. sale .. string.sub(unit, 1, -2) .. '!' -- "!" comes after the space
end
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
  end
  return tostring(n)
end
local answer, n = {}, 0
for i = first_sale, #KEYS, 5 do
  local f = redis.call('HMGET', KEYS[i], 'stock', 'accepted', 'returned')
  local sale = ARGV[4 + n / 6]
  answer[n + 1] = copy_lines(sale, KEYS[i + 4])
  answer[n + 2], answer[n + 3] = tostring(redis.call('ZLEXCOUNT', index, lines_of(sale, ' 0 '))), f[3] or '0'
  answer[n + 4], answer[n + 5], answer[n + 6] = f[1] or '', redis.call('GET', KEYS[i + 1]) or '', f[2] or ''
  copy(KEYS[i + 2], KEYS[i + 3])
  n = n + 6
end
copy(KEYS[1], KEYS[5])
copy(KEYS[2], KEYS[6])
for i = 10, first_sale - 1, 2 do
  copy(KEYS[i], KEYS[i + 1])
end

-- The embedded Redis would share the entries with the copy. It does not tell its version, nor does a Redis before 7, and is read.
local function read(from, to)
  local after = '-'
  repeat
    local entries = redis.call('XRANGE', from, after, '+', 'COUNT', 1000)
    for i = 1, #entries do
      redis.call('XADD', to, entries[i][1], 'm', text_of(entries[i]))
    end
    after = #entries > 0 and '(' .. entries[#entries][1]
  until not after
  redis.call('PEXPIRE', to, ttl)
end
local leased = ''
redis.call('DEL', KEYS[9])
if redis.call('XLEN', orders) > 0 then
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', orders)) do
    local of = {}
    for i = 1, #info, 2 do
      of[info[i]] = info[i + 1]
    end
    if of['name'] == group then
      leased = of['last-delivered-id']
    end
  end
  if redis.REDIS_VERSION_NUM then
    copy(orders, KEYS[9])
  else
    read(orders, KEYS[9])
  end
end
answer[n + 1] = leased
return answer
