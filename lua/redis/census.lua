-- census: where every order of one sale is, at one instant.
--
-- Reads only. It walks the whole lane, so it costs time in proportion to the depth of the queue.
--
-- KEYS 1 sale  2 stock  3 ready  4 delayed  5 dead:letters  6 leases  7 returns  8.. the batch of every lease
-- ARGV 1 sale id  2 what the key of every batch begins with
-- Answers a flat array: "stale" alone when there is a lease whose batch was not declared; else stock in all, left,
-- acceptances (empty when Redis does not hold the sale), then in turn a letter and a message: r ready, w delayed,
-- l leased, d dead. Among them n and the number of the last unit taken back, and b and the id of each order whose unit was taken
-- back and whose row may not know yet.

local sale, stock, ready, delayed, letters, leases, returns = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local sale_id, prefix = ARGV[1], ARGV[2]

local declared = {}
for i = 8, #KEYS do
  declared[KEYS[i]] = true
end
for _, batch in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
  if not declared[prefix .. batch] then
    return { 'stale' }
  end
end

local f = redis.call('HMGET', sale, 'stock', 'accepted', 'returned')
local answer = { f[1] or '', redis.call('GET', stock) or '', f[2] or '' }
local n = #answer
local function put(letter, text)
  answer[n + 1], answer[n + 2] = letter, text
  n = n + 2
end
put('n', f[3] or '0')
for _, id in ipairs(redis.call('HKEYS', returns)) do
  put('b', id)
end
local function add(letter, message)
  if string.match(message, '^%d+ (%S+) ') == sale_id then
    put(letter, message)
  end
end
local function add_list(letter, key)
  local from, step = 0, 1000
  while true do
    local part = redis.call('LRANGE', key, from, from + step - 1)
    for i = 1, #part do
      add(letter, part[i])
    end
    if #part < step then
      return
    end
    from = from + step
  end
end

add_list('r', ready)
for _, message in ipairs(redis.call('ZRANGE', delayed, 0, -1)) do
  add('w', message)
end
for i = 8, #KEYS do
  add_list('l', KEYS[i])
end
local dead = redis.call('HGETALL', letters)
for i = 2, #dead, 2 do
  local ok, letter = pcall(cjson.decode, dead[i])
  if ok and type(letter) == 'table' and type(letter.message) == 'string' then
    add('d', letter.message)
  end
end
return answer
