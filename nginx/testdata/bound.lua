-- The three limiters of bound.conf. Each decision is logged with the instant at which it was made, by the limiter's own clock. For tests only.

local access = require "sluice.access"
local req = require "sluice.limit.req"
local rules = require "sluice.limit.rules"

local ngx = ngx

local _M = {}

-- note_time(f, by): lets f, or the function in it that decides, write down the time of its turn. by: what tells it, `enter` of a zone, `acquire` of
-- a lock, or the clock itself
local function note_time(f, by)
  for i = 1, 20 do
    local name, value = debug.getupvalue(f, i)
    if name == "alone" or name == "refuses_one" then
      return note_time(value, by)
    end
    if name == by then
      debug.setupvalue(f, i, function(...)
        local now, why = value(...)
        ngx.var.decided = ("%.0f"):format(now or 0)
        return now, why
      end)
      return
    end
  end
  error("the limiter has no " .. by)
end

note_time(rules.admit, "acquire")
note_time(rules.refuses, "now_us")
note_time(req.incoming, "enter")

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
