-- Rules with scope = "fleet": all edges share their rate. An edge leases slots of time ahead and spends one for each
-- request that it admits, see docs/adr/0047. The leases of a client are an entry of a shared dict, for all workers:
-- fleet/bucket.lua. `sluice edge` leases from Redis, over a Unix socket: internal/fleetlimit is the other side. Times
-- are those of clock.lua.

local bucket = require "sluice.fleet.bucket"
local count = require("sluice.count").add
local zone = require "sluice.limit.zone"

local ngx = ngx
local ngx_sleep, timer_at, timer_every = ngx.sleep, ngx.timer.at, ngx.timer.every
local max = math.max
local byte, gsub = string.byte, string.gsub
local ipairs, pairs = ipairs, pairs

-- Attempts of a request to take a slot. Between them it leases, or waits for the lease of another request: for 0.5 s in
-- total, as long as a call of Redis may take.
local TRIES = 10
local PAUSE = 1 -- s between two calls of a Redis that failed
-- us for which an entry of the dict is kept: after its last use, and after a sweep that has found its client idle
local KEEP, KEEP_IDLE = 120000000, 10000000
local SWEPT = 500 -- clients between two pauses of a sweep: they take a worker about a millisecond
local CONNECT, SEND, READ = 500, 500, 2000 -- ms
local IDLE, POOL = 30000, 4 -- of connections to `sluice edge`: ms, connections of one worker
local MAX_POLLS = 200 -- leases in the background of one worker: nginx runs at most 256 of its timers at a time
local UNAVAILABLE = "no lease of the fleet's limit"

local dict, buckets, socket
local polls = 0 -- leases in the background that are in progress
local touched = {} -- by key of the dict: { rule, client } of this worker

local _M = {}

-- init(shared_dict, path): call it in init_worker_by_lua. path: of the socket
function _M.init(shared_dict, path)
  dict, buckets, socket = shared_dict, zone.new(shared_dict), path
end

-- prepare(rule): call it once for each rule
function _M.prepare(rule)
  bucket.prepare(rule)
  local id = (rule.shadow and "shadow:" or "") .. rule.name .. (rule.network and ":" .. rule.network * 8 or "")
  rule.fleet_line = ("%s %.0f %.0f %.0f "):format(id, rule.count, rule.period, rule.burst)
end

-- enter(key) -> now: the bucket of this key is loaded, and no other worker uses it until leave; or nil
local function enter(key)
  local now = buckets:enter()
  if now then
    bucket.load(dict:get(key))
  end
  return now
end

local function leave()
  buckets:leave()
end

-- save(key, now, keep) -> whether the bucket is stored. keep: us, by default KEEP
local function save(key, now, keep)
  return buckets:put(now, key, bucket.text(), keep or KEEP, 0)
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

-- lease(rule, client, key, lanes, slots) -> whether Redis has answered and the bucket has the answer. It yields.
local function lease(rule, client, key, lanes, slots)
  local answer = call(("lease %s%s %d %d\n"):format(rule.fleet_line, hex(client), lanes, slots))
  answer = answer and bucket.parse(answer)
  local now, result = enter(key), nil
  if now then
    if answer then
      result = bucket.apply(rule, now, answer)
    else
      bucket.fail_lease()
    end
    save(key, now)
    leave()
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

-- poll(rule, client, key, lanes, slots): leases in the background
local function poll(...)
  local ok, err = pcall(lease, ...)
  polls = polls - 1
  if not ok then
    error(err, 0)
  end
end

-- decide(rule, client) -> true, the slot as a string; false, wait; or nil: unavailable. It may yield.
local function decide(rule, client)
  local key = rule.fleet_line .. client
  local pause = 0.001
  for try = 1, TRIES do
    local now = enter(key)
    if not now then
      return nil
    end
    if try == 1 then
      bucket.see(now)
    end
    local what, wait, lanes, slots = bucket.take(rule, now)
    local calls = lanes and not dict:get("down") and (what ~= "refuse" or polls < MAX_POLLS)
    if calls then
      bucket.begin_lease(now)
    end
    local ok = save(key, now)
    leave()
    touched[key] = touched[key] or { rule, client }
    if not ok or what == "unavailable" then
      return nil
    elseif what == "admit" then
      return true, bucket.spent_slot()
    elseif what == "refuse" then
      if calls and timer_at(0, function() poll(rule, client, key, lanes, slots) end) then
        polls = polls + 1
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
      local now = enter(key)
      if now then
        if bucket.refund(t.slot) then
          save(key, now)
        end
        leave()
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

-- sweep(is_exiting): returns the slots that this edge does not need, or all. See Bucket.Unused. Requests of the worker
-- proceed in its pauses.
local function sweep(is_exiting)
  local keys = {} -- a copy, because requests add keys while a call yields
  for key in pairs(touched) do
    keys[#keys + 1] = key
  end
  for i, key in ipairs(keys) do
    if i % SWEPT == 0 and not is_exiting then
      ngx_sleep(0)
    end
    local t, now = touched[key], enter(key)
    if not now then
      return
    end
    local fields, ended
    if t then
      fields, ended = bucket.unused(t[1], now, is_exiting)
    end
    if fields then
      save(key, now, ended and KEEP_IDLE)
    end
    if ended then
      touched[key] = nil
    end
    leave()
    if fields and fields ~= "" and not dict:get("down") then
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
