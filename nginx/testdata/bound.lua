-- The three limiters of bound.conf. Each decision is logged with the instant at which it was made, by the limiter's own
-- clock. For tests only.

local access = require "sluice.access"

local ngx = ngx

local _M = {}

function _M.edge()
  access.run()
end

-- limiter(module, dict) -> as an access phase with it is usually written, with the rate of the query
local function limiter(module, dict)
  local rate, burst = tonumber(ngx.var.arg_rate), tonumber(ngx.var.arg_burst)
  local delay, err = assert(require(module).new(dict, rate, burst)):incoming("hot", true)
  if delay then
    ngx.var.sluice_verdict = "allow"
  elseif err == "rejected" then
    ngx.var.sluice_verdict = "deny"
    return ngx.exit(429)
  else
    ngx.log(ngx.ERR, err)
    return ngx.exit(500)
  end
end

function _M.alone()
  return limiter("sluice.limit.req", "alone")
end

function _M.resty()
  ngx.var.decided = "0" -- its decisions are counted, and not judged one by one
  return limiter("resty.limit.req", "resty")
end

return _M
