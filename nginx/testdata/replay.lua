-- Replays traces through the modules of the edge with a fake request, clock and shared dict. For tests only. The
-- modules are loaded a second time, in an environment where `ngx` is the table below; the modules of the real edge are
-- not touched.

local ffi = require "ffi"

local now = 0 -- us
local outcome = {} -- of the request at hand

-- A shared dict whose entries expire by the fake clock.
local Dict = {}
Dict.__index = Dict

local function new_dict()
  return setmetatable({ entries = {} }, Dict)
end

local function live(self, key)
  local e = self.entries[key]
  if e and e.expires and e.expires <= now then
    self.entries[key], e = nil, nil
  end
  return e
end

function Dict:get(key)
  local e = live(self, key)
  if not e then
    return nil
  end
  return e.value, e.flags ~= 0 and e.flags or nil
end

function Dict:safe_set(key, value, ttl, flags)
  self.entries[key] = { value = value, flags = flags or 0, expires = ttl and ttl > 0 and now + ttl * 1000000 or nil }
  return true
end

function Dict:safe_add(key, value, ttl, flags)
  if live(self, key) then
    return false, "exists"
  end
  return self:safe_set(key, value, ttl, flags)
end

function Dict:delete(key)
  self.entries[key] = nil
end

function Dict:incr(key, n, init)
  local e = live(self, key)
  self:safe_set(key, (e and e.value or init) + n)
  return self.entries[key].value
end

function Dict.flush_expired() end

Dict.set, Dict.add = Dict.safe_set, Dict.safe_add

local fake = setmetatable({
  var = {},
  header = {},
  req = setmetatable({ get_method = function() return outcome.method end }, { __index = ngx.req }),
  shared = setmetatable({}, { __index = function(t, name)
    t[name] = new_dict()
    return t[name]
  end }),
  exit = function(status) outcome.status = status end,
  sleep = function(seconds) outcome.delay = seconds * 1000000 end,
}, { __index = ngx })

local memory -- of the buckets, with accelerators
local SIZE = 1048576

local loaded = {
  ["sluice.clock"] = { now = function() return now end },
  ["sluice.accel.zone"] = {
    open = function() memory = nil return {} end,
    memory = function(_, fill)
      memory = ffi.new("char[?]", SIZE)
      fill(memory, SIZE)
      return memory
    end,
    acquire = function() return now end,
    release = function() end,
  },
}

local env
local function fake_require(name)
  if not name:find("^sluice%.") then
    return require(name)
  end
  if not loaded[name] then
    local path = assert(package.searchpath(name, package.path))
    loaded[name] = setfenv(assert(loadfile(path)), env)() or true
  end
  return loaded[name]
end
local dice = setmetatable({ random = function(least) return least end }, { __index = math })
env = setmetatable({ ngx = fake, require = fake_require, math = dice }, { __index = _G })
loaded["sluice.accel.variables"] = fake_require "sluice.variables" -- the fake request has no memory of nginx

local access, client = fake_require "sluice.access", fake_require "sluice.client"
local tokens_of = fake_require "sluice.token"
local policy, rules = fake_require "sluice.policy", fake_require "sluice.limit.rules"
local req = fake_require "sluice.limit.req"

local runs = 0

local _M = {}

-- init(secret): call it in init_by_lua
function _M.init(secret)
  fake_require("sluice.token").init(secret)
end

local function text(value)
  return value and value ~= "-" and value or nil
end

-- run(source, tokens, requests) -> a line for each line of requests, beginning with empty buckets. Fields are separated
-- by tabs.
--   request  at (us), peer (hexadecimal), method, path, X-Forwarded-For, Authorization, token; "-" for none, "{n}" for
--            the n-th of tokens
--   line     verdict, rule, remaining, Retry-After, us of delay, shadow, RateLimit, client
function _M.run(source, tokens, requests)
  local p = assert(policy.parse("policy.lua", source))
  rules.init(new_dict())
  tokens_of.use(tokens_of.use()) -- clears the verified cache
  access.init(p)
  local var, out = fake.var, {}
  local function token(value)
    return value and value:gsub("{(%d+)}", function(n) return tokens[tonumber(n)] end)
  end
  for line in requests:gmatch("[^\n]+") do
    local at, peer, method, path, forwarded, authorization, other =
      line:match("^(%d+)\t(%x+)\t(%u+)\t([^\t]+)\t([^\t]*)\t([^\t]*)\t([^\t]*)$")
    now = tonumber(at)
    for name in pairs(var) do
      var[name] = nil
    end
    outcome = { method = method, status = 200, delay = 0 }
    var.binary_remote_addr = peer:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end)
    var.uri, var.http_x_forwarded_for = path, text(forwarded)
    var.http_authorization, var.http_token = token(text(authorization)), token(text(other))
    local key = client.key(var.http_x_forwarded_for)
    var.sluice_client_key = key
    if access.refuses_early(access.plan_of(method, path), key, { authorization = var.http_authorization }) then -- as snippets/refuse.conf has it
      var.sluice_verdict, var.sluice_remaining, outcome.status = "deny", 0, 429
    else
      access.run()
    end
    local verdict = var.sluice_verdict or ""
    out[#out + 1] = table.concat({
      verdict, var.sluice_rule or "", var.sluice_remaining or 0, verdict == "deny" and var.sluice_retry_after or 0,
      ("%.0f"):format(math.ceil(outcome.delay * (1 - 1e-15))), var.sluice_shadow or "", var.sluice_quota or "",
      outcome.status,
    }, "\t")
  end
  return table.concat(out, "\n")
end

-- alone(rate, burst, times) -> a line for each instant: what sluice.limit.req answers, delay and excess, each with nine
-- digits, or the error
function _M.alone(rate, burst, times)
  runs = runs + 1
  local name = "alone " .. runs -- a new one each time: the module keeps the dicts that it has opened
  local limiter = assert(req.new(name, rate, burst))
  local out = {}
  for i, at in ipairs(times) do
    now = at
    local seen, seen_excess = limiter:incoming("key")
    local delay, excess = limiter:incoming("key", true)
    assert(seen == delay and seen_excess == excess, "incoming without commit returns something else")
    out[i] = delay and ("%.9f %.9f"):format(delay, excess) or excess
  end
  fake.shared[name].entries = {}
  return table.concat(out, "\n")
end

return _M
