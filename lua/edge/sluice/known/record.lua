-- What is known of whole sales, in the zone, for all workers: for each path of purchases the refusal that a backend gave last, when it was asked,
-- and for how long the refusal may be repeated; or that it has accepted an order since, after which nothing older counts.
--
-- The zone is asked for every purchase, so what one worker learns every worker knows at once. Its entry is a text, and each worker keeps the last
-- one it has read together with what it means. Times are microseconds of the clock that all workers share; the zone's own expiry only sweeps up.

local ffi = require "ffi"
local shared = require "sluice.shared"
local told = require "sluice.known.told"
local same = require("sluice.request").same

local text_of, buffer = shared.text, shared.buffer
local ffi_string = ffi.string
local match = string.match
local tonumber = tonumber

local MOST_TTL = 1000 -- ms
local RENEW = 0.8 -- of the ttl: after that, one request at a time asks again

-- Seconds. Who went to ask and never came back holds his turn no longer than a record lives.
local SWEPT_AFTER, TURN = 5, 1

local MAX_READ = 1024 -- records kept by one worker, in the form it reads; beyond that it starts afresh

local zone, memory -- the zone, and as shared.lua has it
local read, reads = {}, 0

local _M = {}

function _M.init(sales)
  zone, memory = sales, shared.zone(sales)
end

-- id(path) -> the sale's id, if the path is that of its purchases in its only spelling; or nil
function _M.id(path)
  local id = match(path, "^/v1/sales/([^/]+)/orders$")
  return id and told.is_id(id) and id or nil
end

-- instant(ms) -> RFC 3339, with as many digits of the second as it takes: what Go's time.RFC3339Nano makes of it
local function instant(ms)
  local rest = ms % 1000
  local fraction = rest > 0 and (("." .. ("%03d"):format(rest)):gsub("0+$", "")) or ""
  return os.date("!%Y-%m-%dT%H:%M:%S", (ms - rest) / 1000) .. fraction .. "Z"
end

local function parse(path, text)
  local sent, ttl, state, holders, opens, wait = match(text, "^(%d+) (%d+) (%S+) (%d+) (%d+) (%d+)$")
  sent, ttl = tonumber(sent), tonumber(ttl) * 1000
  if reads >= MAX_READ then
    read, reads = {}, 0
  end
  if not read[path] then
    reads = reads + 1
  end
  local record = {
    text = text, id = _M.id(path), line = "POST " .. path .. " HTTP/1.1", state = state, sent = sent, renew = sent + RENEW * ttl, ends = sent + ttl,
    holders = tonumber(holders), opens = tonumber(opens), opens_at = instant(tonumber(opens)), wait = tonumber(wait),
  }
  read[path] = record
  return record
end

-- find(path) -> record, or nil: nothing is known. Whether it is still good depends on the time:
--   id               of the sale
--   line             the request line of a purchase, as nearly everybody writes it
--   state            sold_out, scheduled, paused, closed; or "open" with `ends` in the past
--   sent             us: when the request that brought it was about to be sent
--   renew, ends      us: from when on it is to be renewed, and when it must not be repeated any more
--   holders          how many orders the sale had accepted
--   opens, opens_at  of a scheduled sale: ms since 1970, and as a text
--   wait             the backend's Retry-After, in seconds, for a scheduled sale
function _M.find(path)
  local n = text_of(memory, path, #path)
  if not n then
    return nil
  end
  local record = read[path]
  if record and same(buffer, n, record.text) then
    return record
  end
  return parse(path, ffi_string(buffer, n))
end

local function put(path, sent, ttl, state, holders, opens, wait)
  return zone:safe_set(path, ("%.0f %d %s %.0f %.0f %d"):format(sent, ttl, state, holders, opens, wait), SWEPT_AFTER)
end

-- learn(path, sent, sale, wait): takes in a refusal. sent: us, no later than the request was sent; sale: see told.lua; wait: seconds or nil
function _M.learn(path, sent, sale, wait)
  local record = _M.find(path)
  if record and record.sent >= sent then
    return
  end
  local ttl = sale.ttl < MOST_TTL and sale.ttl or MOST_TTL
  put(path, sent, ttl, sale.state, sale.holders, sale.opens or 0, wait or 0)
end

-- accepted(path, now): an order was accepted. Its buyer is in no list yet, and must find it when he asks again: what was asked before now is of no
-- use.
function _M.accepted(path, now)
  put(path, now, 0, "open", 0, 0, 0)
end

-- turn(path, sum) -> true for the one who shall ask again, or the sum of the one who has the turn; he gives it back when he has an answer. sum is 0
-- for one whose name is not plain to see.
function _M.turn(path, sum)
  local key = "turn " .. path
  return zone:safe_add(key, sum, TURN) or zone:get(key)
end

function _M.give_back(path)
  zone:delete("turn " .. path)
end

return _M
