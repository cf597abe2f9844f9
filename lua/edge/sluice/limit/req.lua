-- Limits the rate of requests per key, exactly, for all workers together: any interval of length L admits at most
-- rate*L + burst + 1.
--
-- It has the interface of OpenResty's resty.limit.req and can replace it, also under resty.limit.traffic. It needs the
-- files that docs/edge-bound.md lists on lua_package_path, a shared dict and Linux, and no other part of sluice: no
-- configuration, no policy, no line in init_by_lua. docs/edge-bound.md lists the differences: idle keys expire; a full
-- dict refuses a new key and evicts no other; the dict has entries that begin with "sluice: ".
--
-- To put several limits on one request, use limit/rules.lua: a refusal by one then takes nothing from the others.

local ffi = require "ffi"
local clock = require "sluice.clock"
local fraction = require "sluice.limit.fraction"
local gcra = require "sluice.limit.gcra"
local zone = require "sluice.limit.zone"

local ngx_shared = ngx.shared
local assert, error, pcall, setmetatable, type = assert, error, pcall, setmetatable, type
local cast, to_string = ffi.cast, ffi.string
local ceil, max = math.ceil, math.max
local empty_in, excess_of, judge = gcra.empty_in, gcra.excess, gcra.judge
local now_us = clock.now

-- The value of an entry: the backlog of the bucket at an instant, in gcra's unit, and the period that converts it to
-- requests. When the rate of an object changes, the number of requests in the bucket stays.
local record = ffi.new("struct { double last, backlog, period; }")
local RECORD = ffi.typeof("const struct { double last, backlog, period; } *")
local SIZE = ffi.sizeof(record)

local zones = {} -- by name of the dict

local _M = { _VERSION = "0.1.0" } -- of sluice
local mt = { __index = _M }

-- new(dict_name, rate, burst) -> object; or nil, err. rate: requests per second, above 0. burst: requests above the
-- rate that are still admitted, at least 0.
function _M.new(dict_name, rate, burst)
  local opened = zones[dict_name]
  if not opened then
    local dict = ngx_shared[dict_name]
    if not dict then
      return nil, "shared dict not found"
    end
    opened = zone.new(dict)
    zones[dict_name] = opened
  end
  assert(rate > 0 and burst >= 0)
  local self = setmetatable({ zone = opened, dict = opened.dict, burst = burst * 1000 }, mt)
  self:set_rate(rate)
  return self
end

-- The fields rate, burst (in thousandths, as in resty.limit.req) and dict are for readers.

-- set_rate(rate) takes effect with the next call. rate: above 0
function _M.set_rate(self, rate)
  assert(rate > 0)
  self.rate = rate * 1000
  self.count, self.period = fraction.of(rate)
  self.tolerance = self.burst / 1000 * self.period
end

-- set_burst(burst) takes effect with the next call. burst: at least 0
function _M.set_burst(self, burst)
  assert(burst >= 0)
  self.burst = burst * 1000
  self.tolerance = burst * self.period
end

-- read(self, key, now) -> backlog, whether it was written at another rate; or nil, err. A key that is not in the dict
-- has 0, nil.
local function read(self, key, now)
  local v, err = self.zone.dict:get(key)
  if v == nil then
    if type(err) == "string" then
      return nil, err
    end
    return 0
  end
  if type(v) ~= "string" or #v ~= SIZE then
    return nil, "shdict abused by other users"
  end
  local r = cast(RECORD, v)
  local backlog, period, changed = r.backlog, r.period, false
  if period ~= self.period then
    backlog, changed = ceil(backlog * (self.period / period)), true
  end
  return max(backlog - (now - r.last) * self.count, 0), changed
end

local function write(self, key, now, backlog)
  record.last, record.backlog, record.period = now, backlog, self.period
  return self.zone:put(now, key, to_string(record, SIZE), empty_in(self, backlog))
end

-- answer(self, backlog) -> delay (s), excess (requests)
local function answer(self, backlog)
  return excess_of(self, backlog) / 1000000, (backlog - self.period) / self.period
end

local function look(self, key, now)
  local backlog, changed = read(self, key, now)
  if not backlog then
    return nil, changed
  end
  local allowed
  allowed, backlog = judge(self, backlog)
  if not allowed then
    return nil, "rejected"
  end
  return answer(self, backlog)
end

local function take(self, key, now)
  local backlog, changed = read(self, key, now)
  if not backlog then
    return nil, changed
  end
  local allowed
  allowed, backlog = judge(self, backlog)
  if allowed then
    local ok, err = write(self, key, now, backlog)
    if not ok then
      return nil, err
    end
    return answer(self, backlog)
  end
  if changed then
    write(self, key, now, backlog) -- otherwise the entry would expire when the bucket is empty at the former rate
  end
  return nil, "rejected"
end

local function give_back(self, key, now)
  local backlog, changed = read(self, key, now)
  if not backlog then
    return nil, changed
  end
  if changed == nil then
    return nil, "not found"
  end
  return write(self, key, now, max(backlog - self.period, 0))
end

-- alone(f, self, key) -> the results of f(self, key, now), called under the lock of the zone
local function alone(f, self, key)
  local now, why = self.zone:enter()
  if not now then
    return nil, why
  end
  -- A protected call: after an error the lock is released all the same.
  local done, a, b = pcall(f, self, key, now)
  self.zone:leave()
  if not done then
    error(a, 0)
  end
  return a, b
end

-- incoming(key, commit) -> delay, excess: the request may pass. To keep to the rate, the caller sleeps `delay` seconds;
-- `excess` is the number of requests above the rate, this one included. Or nil, "rejected". Or nil, err: the bucket
-- could not be used. It takes nothing unless commit is true. It never sleeps.
function _M.incoming(self, key, commit)
  if not commit then
    return look(self, key, now_us())
  end
  return alone(take, self, key)
end

-- uncommit(key) -> true; or nil, err. Returns what the latest incoming(key, true) has taken. Call it immediately after
-- that, or not at all.
function _M.uncommit(self, key)
  assert(key)
  return alone(give_back, self, key)
end

return _M
