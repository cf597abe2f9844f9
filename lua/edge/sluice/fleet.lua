-- Rules with scope = "fleet": all edges share their rate. An edge leases slots of time ahead and spends one for each
-- request that it admits, see docs/adr/0047. The leases of a client are an entry of a shared dict, for all workers.
-- `sluice edge` leases from Redis, over a Unix socket: internal/fleetlimit is the other side, and its bucket.go decides
-- as this module does. Times are microseconds of CLOCK_MONOTONIC.

local ffi = require "ffi"
local count = require("sluice.count").add
local zone = require "sluice.limit.zone"

local ngx = ngx
local ngx_sleep, timer_at, timer_every = ngx.sleep, ngx.timer.at, ngx.timer.every
local copy, fill, offsetof, sizeof, to_string = ffi.copy, ffi.fill, ffi.offsetof, ffi.sizeof, ffi.string
local abs, ceil, floor, huge, max, min = math.abs, math.ceil, math.floor, math.huge, math.max, math.min
local byte, concat, gmatch, gsub, match = string.byte, table.concat, string.gmatch, string.gsub, string.match
local pairs, tonumber = pairs, tonumber

ffi.cdef [[
typedef struct {
  double opens, opens_step, closes, closes_step, next;
  int32_t n, lane, stride, pad;
  char id[16];
} sluice_fleet_segment;
typedef struct {
  double retry, above, penalty, pause, leasing_until, leased_at, redis, used, since;
  int32_t decisions, seen, unusable, n;
  sluice_fleet_segment segments[48];
} sluice_fleet_bucket;
]]

local MAX_SEGMENTS = 48 -- of a bucket; a lease beyond them is spent
local MAX_SLOTS, MAX_NUMBER = 2 ^ 31 - 1, 2 ^ 53 -- of a segment; in an answer
local MAX_ID = 15 -- bytes
local FIELDS = 9 -- of a segment in an answer, after 3 of the lease
local HEAD, SEGMENT = offsetof("sluice_fleet_bucket", "segments"), sizeof("sluice_fleet_segment")

-- The same numbers as in internal/fleetlimit.
local MAX_LANES, LEASE_SLOTS, MIN_AHEAD, MAX_AHEAD, ROUNDING = 16, 256, 1000000, 24000000, 2
local LEASE_TIMEOUT, UNKNOWN_WAIT, LATE_PAUSE = 1000000, 1000000, 1000000
local LEASE_DECISIONS, LEASE_TIME, CALM_TIME = 256, 20000, 1000000
local POLL_DECISIONS, REST_DECISIONS, POLL_TIME = 64, 16, 1000000
local RECENT_DECISIONS, RECENT_TIME = 512, 8000000
local COLD_AFTER = 10000000

local TRIES = 10 -- of a request, each after a lease; all waits for one are 0.5 s, as long as a call of Redis may take
local PAUSE = 1 -- s between two calls of a Redis that failed
local KEEP = 120000000 -- us that an entry of the dict is kept after its last use
local SWEPT = 500 -- clients between two pauses of a sweep: they take a worker about a millisecond
local CONNECT, SEND, READ = 500, 500, 2000 -- ms
local IDLE, POOL = 30000, 16 -- of connections to `sluice edge`: ms, connections of one worker
local UNAVAILABLE = "no lease of the fleet's limit"

local dict, buckets, socket
local b = ffi.new("sluice_fleet_bucket") -- the bucket of the current turn; nothing yields in a turn
local touched = {} -- by key of the dict: { rule, client } of this worker

local _M = {}

-- init(shared_dict, path): call it in init_by_lua. path: of the socket
function _M.init(shared_dict, path)
  local err
  dict, socket = shared_dict, path
  buckets, err = zone.new(shared_dict)
  if not buckets then
    error("the edge's leases: " .. err, 0)
  end
end

-- prepare(rule): call it once for each rule
function _M.prepare(rule)
  local interval = rule.period / rule.count
  rule.interval = interval
  rule.window = max(rule.burst * interval - ROUNDING, 0)
  rule.ahead = min(max(LEASE_SLOTS * interval, MIN_AHEAD), MAX_AHEAD)
  rule.lanes = min(max(floor(rule.burst / 2), 1), MAX_LANES)
  rule.fleet_id = (rule.shadow and "shadow:" or "") .. rule.name .. (rule.network and ":" .. rule.network * 8 or "")
  rule.fleet_line = ("%s %.0f %.0f %.0f "):format(rule.fleet_id, rule.count, rule.period, rule.burst)
end

local function load(key)
  local v = dict:get(key)
  if v then
    copy(b, v, #v)
  else
    fill(b, sizeof(b))
  end
end

local function save(key, now)
  return buckets:put(now, key, to_string(b, HEAD + b.n * SEGMENT), KEEP, 0)
end

local function skip(s, n)
  s.opens, s.closes = s.opens + n * s.opens_step, s.closes + n * s.closes_step
  s.next, s.n = s.next + n * s.stride, s.n - n
end

-- drop_closed(s, now): removes the slots of a segment that have closed
local function drop_closed(s, now)
  if s.closes < now then
    skip(s, min(s.n, ceil((now - s.closes) / s.closes_step)))
  end
end

-- expire(now): removes the slots that have closed
local function expire(now)
  local live = 0
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    drop_closed(s, now)
    if s.n > 0 then
      if live < i then
        b.segments[live] = s
      end
      live = live + 1
    end
  end
  b.n = live
end

local function see(now)
  if now - b.used > COLD_AFTER then
    b.since, b.seen = now, 0
  end
  if b.seen >= RECENT_DECISIONS or now - b.since > RECENT_TIME and b.seen > 1 then
    b.since, b.seen = now - (now - b.since) / 2, floor(b.seen / 2)
  end
  b.used, b.seen, b.decisions = now, b.seen + 1, b.decisions + 1
end

-- held(now) -> lanes with slots that open later, and how many slots one of them has
local function held(now)
  local lanes, longest = 0, 0
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    if s.opens > now then
      lanes, longest = lanes + 1, max(longest, s.n)
    end
  end
  return lanes, longest
end

-- demand(rule, now) -> lanes, slots of each; or nil. See Bucket.demand.
local function demand(rule, now)
  local recent = max(b.seen, 1)
  local rate = recent / max(now - b.since, 1)
  local lane = rule.interval * rule.lanes
  local share, span, above = rate * lane, CALM_TIME, now < b.above
  local has, longest = held(now)
  if above then
    share, span = 0.8 * share, rule.ahead + rule.window
    local waited = now - b.leased_at > POLL_TIME
    local rested = waited or b.decisions >= POLL_DECISIONS
    if b.decisions < REST_DECISIONS and not waited or (has > 0 or share < 1) and not rested
      or has > 0 and floor(share) <= has then
      return nil
    end
  else
    share = 1.1 * share
  end
  if share < 2 and not above or share < 1 then
    return 1, min(max(floor(share * rule.window / lane), 1), recent)
  end
  local lanes = min(floor(share), rule.lanes, recent)
  span = min(max(LEASE_DECISIONS / rate, LEASE_TIME), span)
  local slots = max(min(floor(span / lane), floor(recent / lanes)), 1)
  if has > 0 then
    lanes, slots = max(lanes - has, 1), min(slots, longest)
  end
  return lanes, slots
end

-- The slot that was spent last, until the next turn: its segment as it was before.
local spent = ffi.new("sluice_fleet_segment")

-- take(rule, now) -> what, wait, lanes, slots. what: "admit"; "refuse", for another `wait` us, with lanes if
-- slots are to be leased in the background; "unavailable"; "lease"; "wait"
local function take(rule, now)
  expire(now)
  local best, opens = nil, huge
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    if s.opens > now then
      opens = min(opens, s.opens)
    elseif not best or s.closes < best.closes then
      best = s
    end
  end
  if best then
    copy(spent, best, SEGMENT)
    skip(best, 1)
    return "admit"
  end
  if b.leasing_until > now and now >= b.retry then
    return "wait"
  end
  if now < b.retry then
    if b.unusable == 1 then
      return "unavailable"
    end
    local wait = min(opens, b.retry) - now
    if b.decisions >= POLL_DECISIONS and b.leasing_until <= now then
      return "refuse", wait, demand(rule, now)
    end
    return "refuse", wait
  end
  local lanes, slots = demand(rule, now)
  if not lanes then
    if b.unusable == 1 then
      return "unavailable"
    end
    return "refuse", min(opens - now, UNKNOWN_WAIT)
  end
  return "lease", nil, lanes, slots
end

-- call(line) -> the answer of `sluice edge`; or nil
local function call(line)
  local sock = ngx.socket.tcp()
  sock:settimeouts(CONNECT, SEND, READ)
  if not sock:connect("unix:" .. socket, { pool_size = POOL }) or not sock:send(line) then
    return nil
  end
  local answer = sock:receive()
  if not answer then
    return nil
  end
  sock:setkeepalive(IDLE, POOL)
  return answer ~= "error" and answer or nil
end

local function hex(text)
  return (gsub(text, ".", function(c) return ("%02x"):format(byte(c)) end))
end

-- is_valid(i, number) -> whether a field of an answer can be this number. Steps and slots are above 0.
local function is_valid(i, number)
  local field = i > 3 and i % FIELDS
  return number and abs(number) < MAX_NUMBER and not ((field == 5 or field == 7) and number <= 0
    or field == 8 and (number < 1 or number > MAX_SLOTS or number % 1 ~= 0))
end

-- parse(answer) -> its fields: numbers, and an id as the last one of each segment; or nil if it is not valid
local function parse(answer)
  local fields = {}
  for text in gmatch(answer, "%S+") do
    local i, value = #fields + 1, text
    if i <= 3 or i % FIELDS ~= 3 then
      value = tonumber(match(text, "^%-?%d+%.?%d*$") or "")
      if not is_valid(i, value) then
        return nil
      end
    elseif #text > MAX_ID then
      return nil
    end
    fields[i] = value
  end
  return #fields % FIELDS == 3 and fields or nil
end

local leased = ffi.new("sluice_fleet_segment") -- of the lease that is applied

-- apply(rule, now, fields) -> "granted", "refused" or "late": adds a lease. See parse and Bucket.Apply.
local function apply(rule, now, fields)
  local redis, further, starting = fields[1], fields[2], fields[3]
  if redis < b.redis then -- the clock of Redis was set back
    b.n = 0
  end
  b.redis, b.retry = redis, now + further
  local last, result, s = now, "refused", leased
  for i = 4, #fields, FIELDS do
    s.opens, s.opens_step, s.closes, s.closes_step = fields[i], fields[i + 1], fields[i + 2], fields[i + 3]
    s.n, s.lane, s.next, s.stride = fields[i + 4], fields[i + 5], fields[i + 6], fields[i + 7]
    fill(s.id, MAX_ID + 1)
    copy(s.id, fields[i + 8])
    last = max(last, s.closes + s.n * s.closes_step)
    drop_closed(s, now)
    if s.n > 0 and s.opens <= s.closes then
      if b.n < MAX_SEGMENTS then
        b.segments[b.n] = s
        b.n = b.n + 1
      end
      result = "granted"
    elseif result == "refused" then
      result = "late"
    end
  end
  local trip = now - (b.leasing_until - LEASE_TIMEOUT)
  if result == "granted" or result == "refused" and trip < rule.window then
    b.pause = 0 -- a lease of this round trip could be spent
  elseif result == "late" then
    local repeated = b.pause > 0
    b.pause = min(max(2 * b.pause, trip), LATE_PAUSE)
    if repeated then
      b.retry = max(b.retry, now + b.pause)
    end
  end
  b.unusable = b.pause > 0 and 1 or starting -- a slot may be missing because late leases have wasted it
  if further == 0 or b.pause > 0 then
    b.penalty = 0
  else
    b.penalty = min(max(2 * b.penalty, rule.window, LEASE_TIME), rule.ahead + rule.window)
    b.above = last + b.penalty
  end
  b.leasing_until, b.leased_at, b.decisions = 0, now, 0
  return result
end

-- lease(rule, client, key, lanes, slots) -> whether Redis has answered. It yields.
local function lease(rule, client, key, lanes, slots)
  local answer = call(("lease %s%s %d %d\n"):format(rule.fleet_line, hex(client), lanes, slots))
  answer = answer and parse(answer)
  local now, result = buckets:enter(), nil
  if now then
    load(key)
    if answer then
      result = apply(rule, now, answer)
    else
      b.leasing_until = 0
    end
    save(key, now)
    buckets:leave()
  end
  if not answer then
    count("fleet/error")
    if dict:add("down", true, PAUSE) then
      ngx.log(ngx.WARN, "the Redis server of fleet limits cannot be used: on_error of each rule decides")
    end
    return false
  end
  count("fleet/" .. (result or "late"))
  return now ~= nil
end

-- decide(rule, client) -> true, the slot as a string; false, wait; or nil: unavailable. It may yield.
local function decide(rule, client)
  local key = rule.fleet_line .. client
  local pause = 0.001
  for try = 1, TRIES do
    local now = buckets:enter()
    if not now then
      return nil
    end
    load(key)
    if try == 1 then
      see(now)
    end
    local what, wait, lanes, slots = take(rule, now)
    local calls = lanes and not dict:get("down")
    if calls then
      b.leasing_until = now + LEASE_TIMEOUT
    end
    local ok = save(key, now)
    buckets:leave()
    touched[key] = touched[key] or { rule, client }
    if not ok or what == "unavailable" then
      return nil
    elseif what == "admit" then
      return true, to_string(spent, SEGMENT)
    elseif what == "refuse" then
      if calls then
        timer_at(0, function() lease(rule, client, key, lanes, slots) end)
      end
      return false, wait
    elseif what == "wait" then
      if try == TRIES then
        return nil
      end
      ngx_sleep(pause)
      pause = pause * 2
    elseif not calls or not lease(rule, client, key, lanes, slots) then
      return nil
    end
  end
  return false, 1000000
end

local function client_of(rule, ip, buyer)
  if rule.key == "token" then
    return buyer
  end
  return hex(#ip == 8 and rule.network and ip:sub(1, rule.network) or ip)
end

-- refund(taken): returns the slots of a request that is refused
function _M.refund(taken)
  for _, t in ipairs(taken) do
    if t.slot then
      local key = t.rule.fleet_line .. t.client
      local now = buckets:enter()
      if now then
        load(key)
        if b.n < MAX_SEGMENTS then
          local s = b.segments[b.n]
          copy(s, t.slot, SEGMENT)
          s.n = 1
          fill(s.id, 16)
          b.n = b.n + 1
          save(key, now)
        end
        buckets:leave()
      end
    end
  end
end

-- admit(rules, n, ip, buyer) -> true, taken; false, rule, wait: this rule refuses for another `wait` us; or nil, rule,
-- err: this rule could not be evaluated and its on_error is "deny". It may yield. ip: the key of the client, see
-- address.lua. buyer: a string, where a rule counts by it
function _M.admit(rules, n, ip, buyer)
  local taken = {}
  for i = 1, n do
    local rule = rules[i]
    local client = client_of(rule, ip, buyer)
    local ok, detail = decide(rule, client)
    if not ok and not rule.shadow then
      if ok == false then
        _M.refund(taken)
        return false, rule, max(detail, 1)
      elseif not rule.lenient then
        _M.refund(taken)
        count(rule.failed)
        return nil, rule, UNAVAILABLE
      end
    end
    taken[i] = { rule = rule, client = client, slot = ok and detail, ok = ok }
  end
  return true, taken
end

-- accept(taken) -> the name of a shadow rule that would have refused, or nil. It counts the rules of an admitted
-- request.
function _M.accept(taken)
  local shadow
  for _, t in ipairs(taken) do
    if t.ok then
      count(t.rule.allowed)
    elseif t.ok == nil then
      count(t.rule.failed)
    else
      count(t.rule.denied)
      shadow = t.rule.name
    end
  end
  return shadow
end

-- give_back(now, before) -> the segments that leave the bucket as fields of a line, "" if there are none. See
-- Bucket.Return.
local function give_back(now, before)
  expire(now)
  local returned, kept = {}, 0
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    local id, finish, joined = to_string(s.id), s.next + s.n * s.stride, false
    for _, r in ipairs(returned) do
      if r.lane == s.lane and r.finish == s.next and id ~= "" then
        r.finish, r.id, joined = finish, id, true
      end
    end
    if not joined and (id == "" or s.opens > before) then
      if kept < i then
        b.segments[kept] = s
      end
      kept = kept + 1
    elseif not joined then
      returned[#returned + 1] = { lane = s.lane, start = s.next, finish = finish, id = id }
    end
  end
  b.n = kept
  local out = {}
  for i, r in ipairs(returned) do
    out[i] = (" %d %.0f %.0f %s"):format(r.lane, r.start, r.finish, r.id)
  end
  return concat(out)
end

-- idle(now) -> whether the edge no longer needs the slots
local function idle(now)
  local gap = b.decisions > 0 and (b.used - b.leased_at) / b.decisions or 0
  return now - b.used > min(max(8 * gap, 1000000), 5000000)
end

-- sweep(is_exiting): returns the slots that this edge does not need, or all. See Bucket.Unused. Requests of the worker
-- proceed in its pauses.
local function sweep(is_exiting)
  local keys = {} -- of now: requests add keys while a call yields
  for key in pairs(touched) do
    keys[#keys + 1] = key
  end
  for i, key in ipairs(keys) do
    if i % SWEPT == 0 and not is_exiting then
      ngx_sleep(0)
    end
    local t, now = touched[key], buckets:enter()
    if not now then
      return
    end
    load(key)
    local fields = ""
    if t and b.leasing_until <= now then
      local ended = is_exiting or idle(now)
      if ended or now < b.above then
        fields = give_back(now, ended and huge or now - t[1].window / 2)
        save(key, now)
      end
      if ended then
        touched[key] = nil
      end
    end
    buckets:leave()
    if fields ~= "" and not dict:get("down") then
      call("return " .. t[1].fleet_line .. hex(t[2]) .. fields .. "\n")
    end
  end
end

-- init_worker(): call it in init_worker_by_lua
function _M.init_worker()
  if not socket then
    return
  end
  local sweeping = false
  timer_every(1, function(is_exiting)
    if sweeping and not is_exiting then
      return
    end
    sweeping = true
    local ok, err = pcall(sweep, is_exiting)
    sweeping = false
    if not ok then
      ngx.log(ngx.ERR, "slots cannot be returned: ", err)
    end
    buckets:repair()
  end)
end

return _M
