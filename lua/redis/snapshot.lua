-- snapshot: keep the queue of a lane as it is at this instant, and tell what its sales count at the same instant.
--
-- The queue is copied, not read: Redis copies a list of 800,000 orders in 30 ms, and reading it in a script takes seconds. The copies
-- are then read in pieces, and vanish by themselves.
--
-- KEYS 1 ready  2 delayed  3 dead:letters  4 leases  5, 6, 7 the copies of the first three  8 orders, the stream  9 its copy
--      then for each batch two: the batch and its copy
--      then for each sale four: the sale, its stock, its returns and the copy of its returns
-- ARGV 1 what the key of every batch begins with   2 how long the copies are kept, ms   3 number of batches
-- Answers "stale" alone when there is a lease whose batch was not declared, and nothing has changed; else for each sale four: stock in
-- all, left and acceptances, empty when Redis does not hold the sale, and the number of the last unit taken back; and last the id up to which the
--      entries of the stream are leased, empty if none are.

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

local function copy(from, to)
  if redis.call('COPY', from, to, 'REPLACE') == 1 then
    redis.call('PEXPIRE', to, ttl)
  end
end
local answer, n = {}, 0
for i = first_sale, #KEYS, 4 do
  local f = redis.call('HMGET', KEYS[i], 'stock', 'accepted', 'returned')
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = f[1] or '', redis.call('GET', KEYS[i + 1]) or '', f[2] or '', f[3] or '0'
  n = n + 4
  copy(KEYS[i + 2], KEYS[i + 3])
end
copy(KEYS[1], KEYS[5])
copy(KEYS[2], KEYS[6])
copy(KEYS[3], KEYS[7])
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
