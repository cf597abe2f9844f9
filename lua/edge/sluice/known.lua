-- Answers for a sale that refuses everybody (sold out, not open yet, paused, closed) from memory: before any limit, token or backend is asked. What
-- it may say a backend has said within the last second, and whoever may hold an order of the sale is let through to it.
--
-- A request meets this module three times. judge() runs before nginx looks for a location, without a coroutine, and says what snippets/refuse.conf
-- answers. fetch() is for the access phase, where it may wait. learn() sees the backend's answer. Only this module of the folder touches variables.

local bit = require "bit"
local clock = require "sluice.clock"
local count = require("sluice.count").add
local holders = require "sluice.known.holders"
local records = require "sluice.known.record"
local subject = require "sluice.known.subject"
local token = require "sluice.token"
local told = require "sluice.known.told"

local band = bit.band
local TOKEN = require("sluice.head.plain").TOKEN

local ngx = ngx
local ngx_var = ngx.var
local now_us = clock.now
local ceil, max, min = math.ceil, math.max, math.min
local match, sub = string.match, string.sub
local tonumber = tonumber

-- What judge answers for a request that is none of its business. One that is let through gets the time, in microseconds: learn must know when it was
-- sent, at the earliest. The time is negative for the one whose turn it is to ask again.
local NOTHING = ""

local COUNTED = { sold_out = "repeated/sold_out", scheduled = "repeated/scheduled", paused = "repeated/paused", closed = "repeated/closed" }

-- Microseconds for which a sale that had nothing to be repeated is not looked up again, by the same worker and for the same request line; unless
-- this worker has learned something meanwhile.
local IDLE = 1000
local learned = 0

local on = false

-- What judge leaves for the access phase. wanted: the record whose sale's list this worker is to fetch. turn: the path whose turn to ask again the
-- request at hand has.
local wanted, turn

local _M = {}

-- init(sales, repeats): sales is the zone; repeats is what the policy says
function _M.init(sales, repeats)
  records.init(sales)
  holders.init(sales)
  on = repeats
end

local AROUND = #"POST " + #" HTTP/1.1" -- what the request line has besides its target

-- spelt(path, request) -> whether the client has spelt the path so, and the rest of the request line in the plainest way; a query makes no difference
local function spelt(path, request)
  local target = ngx_var.request_uri
  if target ~= path and (not target or sub(target, 1, #path + 1) ~= path .. "?") then
    return false
  end
  return #request == #target + AROUND
end

-- may_hold(list, sum): sum is as in subject.lua; no list means that nobody holds anything
local function may_hold(list, sum)
  if sum == false or not list then
    return false
  end
  return sum == nil or holders.has(list, sum)
end

-- sum_of_token(head): head is as head/plain.lua has it, or nil
local function sum_of_token(head)
  if head and head.authorization ~= nil then
    return subject.sum_of(head.authorization, head.authorization_length)
  elseif head and band(head.names, TOKEN) == 0 then
    return false
  end
  local authorization = ngx_var.http_authorization
  local raw = token.from_headers(authorization, not authorization and ngx_var.http_token or nil)
  if not raw then
    return false
  end
  return subject.sum(raw)
end

-- opening(record): what only the answer for a scheduled sale says. The backend gave a number of seconds by its own clock; within the last of them the
-- edge's clock may count down.
local function opening(record)
  ngx_var.sluice_opens_at = record.opens_at
  ngx_var.sluice_retry_after = max(1, record.wait - 1, min(record.wait, ceil(record.opens / 1000 - ngx.now())))
end

-- begin(): another request is at hand. Call it before judge.
function _M.begin()
  if turn then -- whoever had it went no further than the rewrite phase
    records.give_back(turn)
    turn = nil
  end
end

-- is_state(judged) -> whether this answer of judge is a state
function _M.is_state(judged)
  return COUNTED[judged] ~= nil
end

-- glance(line) -> what judge would answer, where that is not a state and takes no look at the zone; or nil. line: as for judge
function _M.glance(line)
  if not on then
    return NOTHING
  end
  local now = now_us()
  if now < line.idle + IDLE and line.idle > learned then
    return now
  end
end

-- judge(line, head, sound) -> the state that is to be told; or the time. line: its `text` is the request line, its `path` is decoded and without a
-- query, and `idle` is for this module to keep: when it saw that there is nothing to be repeated, at first 0. head: as head/plain.lua has it, or nil.
-- sound: whether nginx would not refuse the request further on: then it shall.
function _M.judge(line, head, sound)
  local path, request = line.path, line.text
  local record = records.find(path)
  local now = now_us()
  if not record or now >= record.ends then
    line.idle = now
    return now
  end
  if not sound or request ~= record.line and not spelt(path, request) then
    return now
  end
  local list
  if record.holders > 0 then
    local stale
    list, stale = holders.find(record, now)
    if stale and not wanted and holders.begin(record.id) then
      wanted = record
      return now
    end
    if not list then
      return now
    end
  end
  local sum
  if list or now >= record.renew then
    sum = sum_of_token(head)
    if may_hold(list, sum) then
      return now
    end
  end
  if now >= record.renew and sum ~= false then
    local whose = records.turn(path, sum or 0)
    if whose == true then
      turn = path
      return -now
    elseif whose == sum then -- the same buyer again, who may have got an order without an answer
      return now
    end
  end
  count(COUNTED[record.state])
  if record.state == "scheduled" then
    opening(record)
  end
  return record.state
end

-- ask(id, short): see holders.lua
local function ask(id, short)
  local answer = ngx.location.capture("/.sluice/sales/" .. id .. "/holders", { method = short and ngx.HTTP_HEAD or ngx.HTTP_GET })
  if answer.status ~= 200 then
    return nil, "a backend answers " .. answer.status
  end
  return answer.header["Sluice-Holders"] or "", answer.body
end

-- held(): the request at hand has waited since it was judged
function _M.held()
  local judged = tonumber(ngx_var.sluice_judged)
  if judged then
    ngx_var.sluice_judged = judged < 0 and -now_us() or now_us()
  end
end

-- enter() -> the turn of the request at hand, for leave; or nil. Call first in the access phase. One request at a time waits here for a list.
function _M.enter()
  local mine, record = turn, wanted
  turn, wanted = nil, nil
  if record then
    local ok, why = holders.fetch(record.id, record.holders, ask)
    if not ok then
      ngx.log(ngx.WARN, "the holders of sale ", record.id, " are not known, and its refusals are not repeated: ", why)
    end
    _M.held()
  end
  return mine
end

-- leave(mine): the request was refused before it came to a backend
function _M.leave(mine)
  if mine then
    records.give_back(mine)
  end
end

-- learn(): takes in what the backend's answer to a purchase says of the whole sale. A turn stays with the one who found the backend in trouble: the
-- next would too.
function _M.learn()
  local judged = tonumber(ngx_var.sluice_judged)
  if not judged then
    return
  end
  local path, status = ngx_var.uri, ngx.status
  local id = records.id(path)
  if id and status == 409 then
    local value = ngx_var.upstream_http_sluice_sale
    local sale = value and told.sale(value, id)
    if sale then
      local wait = match(ngx_var.upstream_http_retry_after or "", "^%d%d?%d?%d?%d?%d?%d?%d?%d?$")
      records.learn(path, judged < 0 and -judged or judged, sale, tonumber(wait))
      learned = now_us()
    end
  elseif id and status == 202 and not ngx_var.upstream_http_idempotency_replayed then
    records.accepted(path, now_us())
  end
  if judged < 0 and status < 500 then
    records.give_back(path)
  end
end

return _M
