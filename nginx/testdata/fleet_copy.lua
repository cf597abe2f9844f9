-- Copies of sluice.fleet whose clock, dict, timers and socket of `sluice edge` are those of a test. For tests only.

local ffi = require "ffi"

-- The source is read here: workers may not be able to read it.
local file = assert(io.open(assert(package.searchpath("sluice.fleet", package.path))))
local source = file:read("*a")
file:close()
require "sluice.fleet.bucket" -- declares its types

local _M = {}

-- new(hooks) -> fleet, world. hooks: call(line) -> the answer to a line, or nil; sleep(), while a request waits for a
-- lease. world: now, us; values of the dict, and for how long each is kept, us; log, a line for each error; polls,
-- functions of leases in the background that have not begun; sweep(is_exiting), as each second.
function _M.new(hooks)
  local world = { now = 0, values = {}, kept = {}, log = {}, polls = {} }
  local function none() end
  local loaded = {
    ["sluice.count"] = { add = none },
    ["sluice.limit.zone"] = { new = function()
      return {
        enter = function()
          assert(not world.held, "the lock is taken twice")
          world.held = true
          return world.now
        end,
        leave = function() world.held = false end,
        repair = none,
        put = function(_, _, key, value, us)
          world.values[key], world.kept[key] = value, us
          return true
        end,
      }
    end },
  }
  local function tcp()
    local answer
    return {
      settimeouts = none, setkeepalive = none,
      connect = function() return true end,
      send = function(_, line)
        assert(not world.held, "a call while the lock is held")
        answer = hooks.call((line:gsub("\n$", "")))
        return true
      end,
      receive = function() return answer end,
    }
  end
  local env = setmetatable({ require = function(name) return loaded[name] or require(name) end }, { __index = _G })
  env.ngx = setmetatable({
    log = function(level, ...) if level == ngx.ERR then table.insert(world.log, table.concat { ... }) end end,
    sleep = hooks.sleep,
    socket = { tcp = tcp },
    timer = {
      at = function(_, f) table.insert(world.polls, f) return true end,
      every = function(_, f) world.sweep = f end,
    },
  }, { __index = ngx })
  local fleet = setfenv(assert(loadstring(source, "=fleet")), env)()
  fleet.init({ get = function(_, key) return world.values[key] end, add = none }, "socket")
  fleet.init_worker()
  return fleet, world
end

-- state(value) -> the bucket of an entry of the dict, in the order of the fields of fleetlimit.Bucket
function _M.state(value)
  local b = ffi.new("sluice_fleet_bucket")
  ffi.copy(b, value or "", #(value or ""))
  local fields = {}
  for i = 0, b.n - 1 do
    local s = b.segments[i]
    fields[#fields + 1] = ("%.40g %.40g %.40g %.40g %d %d %.40g %d %s"):format(s.opens, s.opens_step, s.closes,
      s.closes_step, s.n, s.lane, s.next, s.stride, ffi.string(s.id))
  end
  fields[#fields + 1] = ("%.40g %d %.40g %.40g %.40g %d %.40g %.40g %.40g %.40g %.40g %d"):format(b.retry, b.unusable,
    b.pause, b.leasing_until, b.leased_at, b.decisions, b.redis, b.used, b.above, b.penalty, b.since, b.seen)
  return table.concat(fields, " ")
end

-- decide(fleet, rule, ip) -> the decision about a request as text, and the slots that it has spent
function _M.decide(fleet, rule, ip)
  local ok, detail, wait = fleet.admit({ rule }, 1, ip)
  if ok then
    return "admit", detail
  end
  return ok == nil and "unavailable" or ("refuse %.40g"):format(wait)
end

-- slot(taken) -> the number of the slot that a request has spent
function _M.slot(taken)
  local s = ffi.new("sluice_fleet_segment")
  ffi.copy(s, taken[1].slot, ffi.sizeof(s))
  return s.next
end

-- replay(rule, record) -> the results of a client's record, one a line: each line to the socket, each decision, and
-- after each event the bucket. A line of the record is a time and
--   request         then, if it leases, a line of "lease"; and if it waits for a lease in the background, of "poll"
--   lease ANSWER    or "lease" if there is no answer
--   poll ANSWER     of the first lease in the background that is in progress
--   refund          of the slot that was spent last
--   sweep           as each second; "exit" when the worker ends
function _M.replay(rule, record)
  local out, answer, taken = {}, nil, nil
  local lines = record:gmatch("[^\n]+")
  local fleet, world
  local function event()
    local at, what, rest = (lines() or ""):match("^(%d+) (%a+) ?(.*)$")
    world.now, answer = tonumber(at), rest ~= "" and rest or "error"
    return what
  end
  local function poll()
    if world.polls[1] then
      table.remove(world.polls, 1)()
    end
  end
  fleet, world = _M.new {
    call = function(line)
      out[#out + 1] = line
      if line:find("^return") then
        return "ok"
      elseif not answer then
        event()
      end
      local a = answer
      answer = nil
      return a
    end,
    sleep = function()
      event()
      poll()
    end,
  }
  fleet.prepare(rule)
  local what = event()
  while what do
    if what == "request" then
      answer = nil
      local decision, slots = _M.decide(fleet, rule, "client")
      out[#out + 1], taken = decision, slots or taken
    elseif what == "poll" then
      poll()
    elseif what == "refund" then
      fleet.refund(taken)
    else
      world.sweep(what == "exit")
    end
    out[#out + 1] = _M.state(world.values[next(world.values)])
    what = event()
  end
  assert(#world.log == 0, world.log[1])
  return table.concat(out, "\n")
end

return _M
