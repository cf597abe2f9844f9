-- Answers purchases of a sale that refuses all buyers (sold out, scheduled, paused, closed) from memory, before any
-- limit, token or backend is involved. A refusal is at most a second old, and a buyer with a possible order of the sale
-- reaches a backend.
--
-- A request passes this module three times. judge() runs in the rewrite phase, without a coroutine, and decides what
-- snippets/refuse.conf answers. enter() runs in the access phase, where it may wait. store() reads the backend's
-- response.

local bypass_list = require "sluice.refusal_cache.bypass_list"
local clock = require "sluice.clock"
local count = require("sluice.count").add
local list_request = require "sluice.refusal_cache.list_request"
local records = require "sluice.refusal_cache.record"
local sale_hint = require "sluice.refusal_cache.sale_hint"
local subject = require("sluice.accel").select("subject", "sluice.refusal_cache.subject")
local get_variable = require("sluice.accel").select("variables", "sluice.variables").get

local ngx = ngx
local ngx_var = ngx.var
local now_us = clock.now
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local match, sub = string.match, string.sub
local tonumber = tonumber

local COUNTED = {
  sold_out = "repeated/sold_out", scheduled = "repeated/scheduled",
  paused = "repeated/paused", closed = "repeated/closed",
}

local AROUND = #"POST " + #" HTTP/1.1" -- what the request line has besides its target

local on = false

-- What judge leaves for the access phase of the same request. wanted: the record whose bypass list is to be fetched.
-- turn: the path whose refusal the request revalidates.
local wanted, turn

local stamp, stamped = "", -1 -- of the latest millisecond

local _M = {}

-- init(sales, repeats): sales is the shared dict; repeats: the policy's repeat_refusals
function _M.init(sales, repeats)
  records.init(sales)
  bypass_list.init(sales)
  on = repeats
end

-- sent_at(now) -> the time (us) rounded down to a millisecond, as a text. Requests of one millisecond share the text,
-- because a new string for each request would take longer than the rest of judge.
function _M.sent_at(now)
  local ms = floor(now / 1000)
  if ms ~= stamped then
    stamp, stamped = ("%.0f"):format(ms * 1000), ms
  end
  return stamp
end

-- is_plain(path, line) -> whether the request line has the path without escapes, and single spaces; it may have a query
local function is_plain(path, line)
  local target = ngx_var.request_uri
  if target ~= path and (not target or sub(target, 1, #path + 1) ~= path .. "?") then
    return false
  end
  return #line == #target + AROUND
end

-- may_hold(list, sum) -> whether this buyer may be in the bypass list; without a list there are no holders
local function may_hold(list, sum)
  if sum == false or not list then
    return false
  end
  return sum == nil or bypass_list.has(list, sum)
end

-- set_opening(record): the variables for the answer about a scheduled sale. Retry-After is the backend's number of
-- seconds. The edge's clock reduces it by at most one, so a wrong clock has no larger effect.
local function set_opening(record)
  ngx_var.sluice_opens_at = record.opens_at
  ngx_var.sluice_retry_after = max(1, record.wait - 1, min(record.wait, ceil(record.opens / 1000 - ngx.now())))
end

-- begin(): call it first for each request. If there is still a turn, it belongs to an earlier request that ended in the
-- rewrite phase, and begin gives it back.
function _M.begin()
  if turn then
    records.give_back(turn)
    turn = nil
  end
end

-- is_state(judged) -> whether this result of judge is a state
function _M.is_state(judged)
  return COUNTED[judged] ~= nil
end

-- is_quiet(path, now) -> whether there is no refusal for this path at this time (us)
function _M.is_quiet(path, now)
  local record = on and records.find(path)
  return not record or now >= record.ends
end

-- judge(path, line, headers, sound) -> one of
--   a state of the sale    the purchase is refused for it
--   the text of sent_at    for store: the request is sent to a backend at this time or later. With a minus sign for the
--                          request that revalidates a refusal
--   ""                     this module is off
-- path: decoded and without a query; line: the request line; headers: see head.lua; sound: whether nginx will accept
-- the request
function _M.judge(path, line, headers, sound)
  if not on then
    return ""
  end
  local record, now = records.find(path), now_us()
  local sent = _M.sent_at(now)
  if not record or now >= record.ends or not sound or line ~= record.line and not is_plain(path, line) then
    return sent
  end
  local list
  if record.holders > 0 then
    local stale
    list, stale = bypass_list.find(record, now)
    if stale and not wanted and bypass_list.begin(record, now) then
      wanted = record
      return sent
    end
    if not list then
      return sent
    end
  end
  local sum
  if list or now >= record.renew then
    sum = subject.of(headers)
    if may_hold(list, sum) then
      return sent
    end
  end
  if now >= record.renew and sum ~= false then
    local holder = records.turn(path, sum or 0)
    if holder == true then
      turn = path
      return "-" .. sent
    elseif holder == sum then -- the same buyer again: an earlier request may have an order and no response yet
      return sent
    end
  end
  count(COUNTED[record.state])
  if record.state == "scheduled" then
    set_opening(record)
  end
  return record.state
end

-- delayed(): call it after the request has waited. It replaces the time that judge returned by the present time.
function _M.delayed()
  local judged = tonumber(ngx_var.sluice_judged)
  if judged then
    ngx_var.sluice_judged = (judged < 0 and "-" or "") .. _M.sent_at(now_us())
  end
end

-- enter() -> the turn of the request, for leave; or nil. Call it first in the access phase. The one request that
-- fetches a list waits here.
function _M.enter()
  local mine, record = turn, wanted
  turn, wanted = nil, nil
  if record then
    local ok, why = bypass_list.fetch(record.id, record.holders, function(id, short)
      return list_request(record.backend, id, short)
    end)
    if not ok then
      ngx.log(ngx.WARN, "no bypass list of sale ", record.id, ", its refusals are not repeated: ", why)
    end
    _M.delayed()
  end
  return mine
end

-- leave(mine): the request was refused before it reached a backend
function _M.leave(mine)
  if mine then
    records.give_back(mine)
  end
end

-- store(): stores the sale hint of the backend's response to a purchase. When the backend fails, the turn is not
-- returned: the next request would fail as well.
function _M.store()
  local judged = tonumber(get_variable("sluice_judged"))
  if not judged then
    return
  end
  local path, status = get_variable("uri"), ngx.status
  local id = records.id(path)
  if id and status == 409 then
    local value = ngx_var.upstream_http_sluice_sale
    local sale = value and sale_hint.sale(value, id)
    if sale then
      local wait = match(ngx_var.upstream_http_retry_after or "", "^%d%d?%d?%d?%d?%d?%d?%d?%d?$")
      local backend = match(ngx_var.upstream_addr, "[^, ]+$") -- the last one that was tried
      records.store(path, judged < 0 and -judged or judged, sale, backend, tonumber(wait))
    end
  elseif id and status == 202 and not get_variable("upstream_http_idempotency_replayed") then
    records.invalidate(path, now_us)
  end
  if judged < 0 and status < 500 then
    records.give_back(path)
  end
end

return _M
