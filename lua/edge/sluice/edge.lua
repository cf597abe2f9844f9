-- Starts the Lua edge. init() runs in the master, before it forks and on every reload: an error there makes nginx refuse the configuration,
-- and a running edge keeps the one it has. All modules are loaded here, so workers read no file.

local access = require "sluice.access"
local chance = require "sluice.chance"
local count = require "sluice.count"
local known = require "sluice.known"
local policy = require "sluice.policy"
local request_id = require "sluice.request_id"
local rules = require "sluice.limit.rules"
local status = require "sluice.status"
local token = require "sluice.token"
require "sluice.rewrite"

local _M = {}

-- check() -> policy: the parts of init that nginx/check.conf can do without shared memory. Errors with one line that says what is wrong.
function _M.check()
  token.init(os.getenv("SLUICE_TOKEN_SECRET"), os.getenv("SLUICE_TOKEN_KEYS"))
  local path = os.getenv("SLUICE_POLICY")
  if not path or path == "" then
    path = ngx.config.prefix() .. "lua/policy.lua"
  end
  local p, message = policy.load(path)
  if not p then
    error(message, 0)
  end
  return p
end

function _M.init()
  -- The way of a request through the edge is longer than what LuaJIT compiles in one piece by default (15, 4000, 500, 500).
  jit.opt.start("loopunroll=60", "maxrecord=10000", "maxsnap=1500", "maxirconst=2000")
  local p = _M.check()
  rules.init(ngx.shared.sluice_buckets)
  access.init(p)
  known.init(ngx.shared.sluice_sales, p.repeats)
  status.init(p)
  request_id.init(chance.bytes(28))
end

function _M.init_worker()
  -- Retry-After is jittered, and workers that drew the same numbers would take the jitter out again.
  request_id.init_worker(ngx.worker.pid(), math.floor(ngx.now()))
  math.randomseed(ngx.now() * 1000 + ngx.worker.pid() * 7919)
  -- A worker holds a few megabytes, most of them tokens it remembers: to look through those more seldom costs little memory. Default: 200.
  collectgarbage("setpause", 400)
  count.start(ngx.shared.sluice_counters)
  ngx.timer.every(1, rules.mend)
end

function _M.exit_worker()
  count.flush(ngx.shared.sluice_counters)
end

return _M
