-- Starts the Lua edge. init() runs in the master, before it forks and on every reload: an error there makes nginx refuse the configuration,
-- and a running edge keeps the one it has. All modules are loaded here, so workers read no file.

local access = require "sluice.access"
local lock = require "sluice.limit.lock"
local policy = require "sluice.policy"
local req = require "sluice.limit.req"
local token = require "sluice.token"
require "sluice.response"

local _M = {}

-- check() -> policy: the parts of init that nginx/check.conf can do without shared memory. Errors with one line that says what is wrong.
function _M.check()
  token.init(os.getenv("SLUICE_TOKEN_SECRET"))
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
  local p = _M.check()
  lock.init(ngx.shared.sluice_state)
  req.init(ngx.shared.sluice_buckets, ngx.shared.sluice_state)
  access.init(p)
end

-- Retry-After is jittered, and workers that drew the same numbers would take the jitter out again.
function _M.init_worker()
  math.randomseed(ngx.now() * 1000 + ngx.worker.pid() * 7919)
end

return _M
