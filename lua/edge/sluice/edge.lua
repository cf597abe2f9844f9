-- Starts the Lua edge. init() runs in the master, before it forks and on every reload. After an error in it, nginx
-- rejects the configuration, and a running edge keeps its own. All modules are loaded here: workers read no
-- files but the keys of a URL.
--
-- init() uses no shared dict: a worker that was killed may hold the lock of the dict. nginx releases that lock when the
-- master receives SIGCHLD, but the master handles no signals while it reloads, so init() would wait forever.

local access = require "sluice.access"
local claims = require "sluice.token.claims"
local count = require "sluice.count"
local fleet = require "sluice.fleet"
local follow = require "sluice.token.follow"
local handover = require "sluice.handover"
local policy = require "sluice.policy"
local random = require "sluice.random"
local refusal_cache = require "sluice.refusal_cache"
local request_id = require "sluice.request_id"
local rules = require "sluice.limit.rules"
local status = require "sluice.status"
local token = require "sluice.token"

local MIN_DICT = 32768 -- bytes
local ATTEMPTS = 120 -- at the start, when all workers need the lock of the buckets: each attempt may wait 0.5 s for it

local _M = {}

local in_force -- the policy
local lease_socket

local judge = require("sluice.accel").select("rewrite", "sluice.rewrite").judge

-- judge() -> $sluice_judged, see rewrite.lua. Until the worker has opened its buckets, every request gets 500.
function _M.judge()
  error("the worker has not opened the buckets", 0)
end

-- check_dicts(): raises an error if the configuration does not have the shared dicts of nginx/conf.d/20-lua.conf.
-- capacity takes no lock.
local function check_dicts()
  for _, name in ipairs { "sluice_buckets", "sluice_leases", "sluice_sales", "sluice_counters" } do
    local dict = ngx.shared[name]
    if not dict or dict:capacity() < MIN_DICT then
      error(("lua_shared_dict %s of at least %dk is required"):format(name, MIN_DICT / 1024), 0)
    end
  end
end

-- check() -> policy, its path: the parts of init that nginx/check.conf needs. Raises an error of one line.
function _M.check()
  check_dicts()
  local secret, keys = os.getenv("SLUICE_TOKEN_SECRET"), os.getenv("SLUICE_TOKEN_KEYS")
  token.init(secret, keys)
  claims.expect(os.getenv("SLUICE_TOKEN_ISSUER"), os.getenv("SLUICE_TOKEN_AUDIENCE"))
  follow.init(secret, keys, os.getenv("SLUICE_KEYS_SOCKET"))
  local path = os.getenv("SLUICE_POLICY")
  if not path or path == "" then
    path = ngx.config.prefix() .. "lua/policy.lua"
  end
  local p, message = policy.load(path)
  if not p then
    error(message, 0)
  end
  for _, rule in ipairs(p.rules) do
    if rule.fleet and not os.getenv("SLUICE_LEASE_SOCKET") then
      error(path .. ': rule "' .. rule.name .. '" has scope = "fleet", which needs a Redis server: start '
        .. "nginx with sluice edge, which has --limit-redis and SLUICE_LIMIT_REDIS_URL", 0)
    end
  end
  return p, path
end

-- check_in_one_line() -> what check returns. For an error, ngx_lua logs what debug.traceback returns, here the message
-- alone, and discards this Lua VM.
local function check_in_one_line()
  local ok, result, path = pcall(_M.check)
  if not ok then
    rawset(debug, "traceback", function(message) return message end)
    error(result, 0)
  end
  return result, path
end

function _M.init()
  -- A request's path through the edge is longer than the longest trace that LuaJIT compiles by default (15, 4000, 500,
  -- 500). LuaJIT does not compile a function that ends in a call of a built-in function, and gives up on it after some
  -- tries: functions on this path return (tonumber(x)), with parentheses, which is not a tail call.
  jit.opt.start("loopunroll=60", "maxrecord=10000", "maxsnap=1500", "maxirconst=2000")
  local path
  in_force, path = check_in_one_line()
  lease_socket = os.getenv("SLUICE_LEASE_SOCKET") -- workers do not have this variable
  status.init(in_force, os.getenv("SLUICE_VERSION"), os.getenv("SLUICE_SPANS_METRICS"))
  request_id.init(random.bytes(28))
  handover.init()
  ngx.log(ngx.NOTICE, "policy: ", path, "; rules: ", #in_force.rules, "; token keys: ",
    table.concat(token.names(), ", "))
end

-- open(_, attempts): opens the buckets. If that fails, it tries again after a second.
local function open(_, attempts)
  local ok, err
  for _ = 1, attempts do
    ok, err = pcall(rules.init, ngx.shared.sluice_buckets)
    if ok then
      access.init(in_force)
      _M.judge = judge
      ngx.timer.every(1, rules.repair)
      return
    end
  end
  ngx.log(ngx.ERR, "all requests get 500, because the buckets cannot be opened: ", err)
  ngx.timer.at(1, open, 1)
end

function _M.init_worker()
  fleet.init(ngx.shared.sluice_leases, lease_socket)
  open(nil, ATTEMPTS)
  refusal_cache.init(ngx.shared.sluice_sales, in_force.repeats)
  handover.start(ngx.shared.sluice_counters, function()
    local closing = handover.closing(judge)
    if _M.judge == judge then -- otherwise the buckets are not open, and `open` will use the new judge
      _M.judge = closing
    end
    judge = closing
  end)
  -- Each worker draws its own random numbers for the jitter of Retry-After.
  request_id.init_worker(ngx.worker.pid(), math.floor(ngx.now()))
  math.randomseed(ngx.now() * 1000 + ngx.worker.pid() * 7919)
  -- A worker holds a few megabytes, most of them in the verified cache: fewer collections cost little memory. Default:
  -- 200.
  collectgarbage("setpause", 400)
  count.start(ngx.shared.sluice_counters)
  follow.init_worker()
  fleet.init_worker()
end

function _M.exit_worker()
  count.flush(ngx.shared.sluice_counters)
end

return _M
