-- Bypass lists: the buyers who may hold an order of a sale, as CRC-32 sums of four bytes each. A refusal that counts n
-- accepted orders may be repeated to other buyers once there is a list that is complete for n orders.
--
-- A list is kept once in the shared dict, and once in each worker that uses it: a lookup copies nothing. The worker
-- also keeps a table of bits. The upper bits of each sum in the list select a bit of the table, which is set. If the
-- bit of a buyer is not set, the buyer is not in the list; for most other buyers this saves the search. A holder takes
-- four bytes in the dict and six to eight bytes in each worker: a million holders, with four workers, take 28 MB.

local bit = require "bit"
local clock = require "sluice.clock"
local count = require("sluice.count").add
local ffi = require "ffi"
local sale_hint = require "sluice.refusal_cache.sale_hint"

local cast = ffi.cast
local band, bor, bxor, lshift, rshift = bit.band, bit.bor, bit.bxor, bit.lshift, bit.rshift
local match = string.match
local pairs, tonumber = pairs, tonumber
local now_us = clock.now

local MAX_HOLDERS = 1048576 -- of one sale
local SIZE = 4 -- bytes of a sum

-- us. When Redis loses data, a sale's number of orders may fall and reach the old number again with other buyers. So a
-- list is not used after MAX_AGE; it is fetched again after REFRESH.
local MAX_AGE, REFRESH = 300000000, 240000000

-- Seconds. A fetch takes less than FETCHING. The next fetch after a failed one begins after RETRY, or after LONG if an
-- earlier one would fail as well.
local FETCHING, RETRY, LONG, SWEPT_AFTER = 45, 0.5, 10, 300

local sums_of = ffi.typeof("const uint32_t *")
-- Sums are compared as signed numbers, with the first bit inverted.
local TOP = bit.tobit(0x80000000)
local network = ffi.abi("le") and bit.bswap or bit.tobit

local zone
local lists = {} -- by the id of the sale; only lists that are in the dict

local _M = {}

function _M.init(sales)
  zone = sales
end

local function list_of(bytes, accepted, fetched, meta)
  return {
    bytes = bytes, sums = cast(sums_of, bytes), n = #bytes / SIZE,
    accepted = accepted, fetched = fetched, meta = meta,
  }
end

-- mark(list): makes the table of bits of a list. It has 16 to 32 bits for each holder, and at least 64 Ki. So the bit
-- is set for at most one in 16 of the buyers that are not in the list.
local function mark(list)
  local width = 16
  while lshift(1, width) < 16 * list.n do
    width = width + 1
  end
  local bits, sums, down = ffi.new("uint8_t[?]", lshift(1, width - 3)), list.sums, 32 - width
  for i = 0, list.n - 1 do
    local at = rshift(network(sums[i]), down)
    local byte = rshift(at, 3)
    bits[byte] = bor(bits[byte], lshift(1, band(at, 7)))
  end
  list.bits, list.down = bits, down
end

-- hold(id, list): keeps the list in this worker, and drops those that were fetched MAX_AGE or more before it
local function hold(id, list)
  for other, old in pairs(lists) do
    if list.fetched - old.fetched >= MAX_AGE then
      lists[other] = nil
    end
  end
  mark(list)
  lists[id] = list
end

-- kept(id) -> list, or nil: the worker's own copy, updated from the dict
local function kept(id)
  local meta = zone:get("list " .. id)
  local list = lists[id]
  if not meta then
    lists[id] = nil
    return nil
  end
  if list and list.meta == meta then
    return list
  end
  local bytes = zone:get("sums " .. id)
  local fetched, accepted, n = match(meta, "^(%d+) (%d+) (%d+)$")
  if not bytes or #bytes ~= tonumber(n) * SIZE then -- another worker is replacing it
    return nil
  end
  list = list_of(bytes, tonumber(accepted), tonumber(fetched), meta)
  hold(id, list)
  return list
end

-- fits(list, record, now) -> whether the list may be used for this refusal. When a refusal that was requested after the
-- list counts fewer orders, the sale lost data, and the list is not about the same orders.
local function fits(list, record, now)
  return list.accepted >= record.holders and now - list.fetched < MAX_AGE
    and (list.accepted == record.holders or record.sent <= list.fetched)
end

-- find(record, now) -> the list for this refusal, or nil; and whether a list should be fetched
function _M.find(record, now)
  local list = lists[record.id]
  if not list or now - list.fetched >= REFRESH or not fits(list, record, now) then
    -- another worker may have stored a newer one
    list = kept(record.id)
    if not list or not fits(list, record, now) then
      return nil, true
    end
  end
  return list, now - list.fetched >= REFRESH
end

-- search(list, sum) -> whether the sum is in the list: binary search
local function search(list, sum)
  local sums, low, high = list.sums, 0, list.n
  local want = bxor(sum, TOP)
  while low < high do
    local middle = rshift(low + high, 1)
    local at = bxor(network(sums[middle]), TOP)
    if at == want then
      return true
    elseif at < want then
      low = middle + 1
    else
      high = middle
    end
  end
  return false
end

-- has(list, sum) -> whether the sum is in it
function _M.has(list, sum)
  local at = rshift(sum, list.down)
  if band(list.bits[rshift(at, 3)], lshift(1, band(at, 7))) == 0 then
    return false
  end
  return search(list, sum)
end

-- begin(record, now) -> true for the one caller that fetches the list for this refusal now; it calls fetch. Call it
-- when find wants a list. Another worker may have stored one since, so it looks again.
function _M.begin(record, now)
  local key = "fetch " .. record.id
  if zone:safe_add(key, true, FETCHING) ~= true then
    return false
  end
  local _, stale = _M.find(record, now)
  if not stale then
    zone:delete(key)
  end
  return stale
end

local function ascending(list)
  local sums, last = list.sums, nil
  for i = 0, list.n - 1 do
    local at = bxor(network(sums[i]), TOP)
    if last and at <= last then
      return false
    end
    last = at
  end
  return true
end

-- length(id, header) -> accepted, n; or nil, err, hopeless. hopeless: whether a retry would fail as well
local function length(id, header)
  local accepted, n = sale_hint.holders(header, id)
  if not accepted then
    return nil, "its header cannot be read"
  elseif n > MAX_HOLDERS then
    return nil, "it has more than " .. MAX_HOLDERS .. " holders", true
  end
  return accepted, n
end

-- get(id, request) -> list; or nil, err, hopeless
local function get(id, request)
  local header, body = request(id, true)
  if not header then
    return nil, body
  end
  local accepted, n, hopeless = length(id, header)
  if not accepted then
    return nil, n, hopeless
  end
  header, body = request(id, false)
  if not header then
    return nil, body
  end
  accepted, n, hopeless = length(id, header)
  if not accepted then
    return nil, n, hopeless
  elseif #body ~= n * SIZE then
    return nil, "it is cut off"
  end
  local fetched = now_us()
  local list = list_of(body, accepted, fetched, ("%.0f %.0f %d"):format(fetched, accepted, n))
  if not ascending(list) then
    return nil, "it is not in order"
  end
  return list
end

-- keep(id, list) -> true; or nil, err, hopeless. `kept` relies on the order of the writes.
local function keep(id, list)
  zone:delete("list " .. id)
  zone:delete("sums " .. id)
  local ok, why = zone:safe_set("sums " .. id, list.bytes, SWEPT_AFTER)
  if ok then
    ok, why = zone:safe_set("list " .. id, list.meta, SWEPT_AFTER)
  end
  if not ok then
    return nil, "zone sluice_sales: " .. why, true
  end
  hold(id, list)
  return true
end

-- fetch(id, least, request) -> true; or nil, err. Call it after begin only. A list that is complete for fewer
-- orders than `least` is kept as well, and the next fetch then waits as after a failure: the backend has no newer list
-- yet.
-- request(id, short) -> header, body; or nil, err: requests the list from a backend; with `short` only its header,
-- which has the length of the list, before memory is allocated for it
function _M.fetch(id, least, request)
  local ok
  local list, why, hopeless = get(id, request)
  if list then
    ok, why, hopeless = keep(id, list)
  end
  if not ok then
    count("list/error")
    zone:safe_set("fetch " .. id, true, hopeless and LONG or RETRY)
    return nil, why
  end
  count("list/ok")
  if list.accepted < least then
    zone:safe_set("fetch " .. id, true, RETRY)
  else
    zone:delete("fetch " .. id)
  end
  return true
end

-- total() -> the number of holders in all lists of the dict
function _M.total()
  local n = 0
  for _, name in ipairs(zone:get_keys(0)) do
    local meta = match(name, "^list ") and zone:get(name)
    if meta then
      n = n + tonumber(match(meta, "%d+$"))
    end
  end
  return n
end

return _M
