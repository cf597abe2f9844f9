-- Refusals of whole sales, in a shared dict: for each path of purchases the latest refusal of a backend, the time at
-- which the request that brought it was sent, and how long the edge may repeat it. A refusal that is older than the
-- latest accepted order is removed.
--
-- Every purchase reads the dict, so a refusal that one worker has stored is known to all. A refusal is a text; each
-- worker keeps the latest text that it has read together with its meaning. Another entry, the mark, has the time of
-- the latest accepted order. Times are microseconds (clock.lua). The expiry of the dict only removes what is no longer
-- used.

local sale_hint = require "sluice.refusal_cache.sale_hint"

local match = string.match
local tonumber = tonumber

local MAX_TTL = 1000 -- ms
local RENEW = 0.8 -- of the ttl: after that, one request at a time revalidates the refusal

-- Seconds. A turn that is never given back expires after TURN, which is the longest lifetime of a record.
local SWEPT_AFTER, TURN = 5, 1

-- A mark is later than its order by this (us), see invalidate.
local MARGIN = 1000

-- The mark of all sales, used if the mark of one has no room. It exists from the start, so it can always be replaced.
local ANY = "accepted"

local MAX_READ = 1024 -- paths, and records with their meaning, that one worker keeps; beyond that it starts again

local MAX_PATH = #"/v1/sales/" + sale_hint.MAX_ID + #"/orders"

local zone
local read, reads = {}, 0
local ids, paths = {}, 0 -- by path; false for a path that is not one of purchases

local _M = {}

-- init(sales): the shared dict
function _M.init(sales)
  zone = sales
  zone:safe_add(ANY, 0)
end

-- id(path) -> the sale's id, if this is the canonical path of its purchases; or nil
function _M.id(path)
  local id = ids[path]
  if id == nil and #path <= MAX_PATH then
    if paths >= MAX_READ then
      ids, paths = {}, 0
    end
    id = match(path, "^/v1/sales/([^/]+)/orders$")
    id = id and sale_hint.is_id(id) and id or false
    ids[path], paths = id, paths + 1
  end
  return id or nil
end

-- instant(ms) -> RFC 3339 without trailing zeros, as Go's time.RFC3339Nano writes it
local function instant(ms)
  local rest = ms % 1000
  local fraction = rest > 0 and (("." .. ("%03d"):format(rest)):gsub("0+$", "")) or ""
  return os.date("!%Y-%m-%dT%H:%M:%S", (ms - rest) / 1000) .. fraction .. "Z"
end

local function parse(path, text)
  local sent, ttl, state, holders, opens, wait, backend = match(text, "^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+) (%S+)$")
  if not sent then -- of another version, before a reload
    return nil
  end
  sent, ttl = tonumber(sent), tonumber(ttl) * 1000
  if reads >= MAX_READ then
    read, reads = {}, 0
  end
  if not read[path] then
    reads = reads + 1
  end
  local record = {
    text = text, id = _M.id(path), line = "POST " .. path .. " HTTP/1.1", state = state,
    sent = sent, renew = sent + RENEW * ttl, ends = sent + ttl,
    holders = tonumber(holders), opens = tonumber(opens), opens_at = instant(tonumber(opens)), wait = tonumber(wait),
    backend = backend,
  }
  read[path] = record
  return record
end

-- find(path) -> the record of a refusal, or nil. The caller compares the times with the present:
--   id               of the sale
--   line             the request line of a purchase, as nearly all clients write it
--   state            sold_out, scheduled, paused, closed
--   sent             us: the time before the request that brought the refusal was sent
--   renew, ends      us: from when on the refusal is revalidated, and from when on it must not be repeated
--   holders          the number of orders that the sale had accepted
--   opens, opens_at  of a scheduled sale: ms since 1970, and as a text
--   wait             of a scheduled sale: the backend's Retry-After in seconds
--   backend          the address of the backend that sent the refusal, as nginx names it
function _M.find(path)
  local text = zone:get(path)
  if not text then
    return nil
  end
  local record = read[path]
  if record and record.text == text then
    return record
  end
  return parse(path, text)
end

-- is_superseded(path, sent) -> whether an order was accepted after this time
local function is_superseded(path, sent)
  local mark, any = zone:get("accepted " .. path), zone:get(ANY)
  return mark ~= nil and mark >= sent or any ~= nil and any >= sent
end

-- store(path, sent, sale, backend, wait): stores a refusal, unless a newer one is there, or an order was accepted
-- meanwhile. sent: us, not after the request was sent. sale: see sale_hint.lua. backend: see find. wait: seconds, or
-- nil
--
-- Another worker may invalidate at the same time. store writes the refusal and then reads the mark; invalidate writes
-- the mark and then removes the refusal. So at least one of the two removes a refusal that is older than the order.
function _M.store(path, sent, sale, backend, wait)
  local record = _M.find(path)
  if record and record.sent >= sent or is_superseded(path, sent) then
    return
  end
  local ttl = sale.ttl < MAX_TTL and sale.ttl or MAX_TTL
  local text = ("%.0f %d %s %.0f %.0f %d %s"):format(sent, ttl, sale.state, sale.holders, sale.opens or 0, wait or 0,
    backend)
  zone:safe_set(path, text, SWEPT_AFTER)
  if is_superseded(path, sent) then
    zone:delete(path)
  end
end

-- mark(path, now) -> whether the worker was not interrupted for MARGIN while it wrote the mark
local function mark(path, now)
  local started = now()
  if not zone:safe_set("accepted " .. path, started + MARGIN, SWEPT_AFTER) then
    zone:safe_set(ANY, started + MARGIN)
  end
  return now() - started < MARGIN
end

-- invalidate(path, now): an order was accepted. Its buyer is in no bypass list yet, and a repeated request must reach
-- the backend: refusals that were requested until now are not repeated. now: a function that returns the time
--
-- Workers that invalidate at the same time write their marks in any order, so a mark may be replaced by one with an
-- earlier time. Each mark is therefore MARGIN later than the present. If the worker was interrupted for longer than
-- MARGIN, it writes the mark again. So each mark is later than the instant at which it was written, and thus later than
-- every order whose mark it has replaced.
function _M.invalidate(path, now)
  while not mark(path, now) do -- LuaJIT does not compile the callers of a repeat loop, which is always entered
  end
  zone:delete(path)
end

-- turn(path, sum) -> true for the request that revalidates the refusal; otherwise the sum of the buyer that does. The
-- turn is returned with give_back when there is an answer. sum: 0 for an unknown buyer
function _M.turn(path, sum)
  local key = "turn " .. path
  return zone:safe_add(key, sum, TURN) or zone:get(key)
end

function _M.give_back(path)
  zone:delete("turn " .. path)
end

return _M
