-- Hands clients over when a reload has started new workers. A tenth of a second later the old workers close their
-- connections (worker_shutdown_timeout is for requests in progress), and a client that sends at that moment sees a
-- reset. Before that, an old worker announces in each response that the connection ends, and the client opens another
-- one.

local clock = require "sluice.clock"

local ngx = ngx
local byte = string.byte
local pcall = pcall

local EVERY = 0.04 -- s
local NEWEST = "generation" -- an entry of the shared dict

local ONE = 49 -- in HTTP/1.x

local generation -- the time (clock.lua) at which the configuration was loaded

local _M = {}

-- init(): call it in init_by_lua
function _M.init()
  generation = clock.now()
end

-- announce(): adds "Connection: close" to the response. nginx also adds "Connection: keep-alive"; a client that
-- receives both closes the connection (RFC 9112, section 9.6). HTTP/2 has no such header.
local function announce()
  local line = ngx.var.request
  if line and byte(line, -3) == ONE then
    ngx.header["Connection"] = "close"
  end
end

-- closing(judge) -> the function judge (see rewrite.lua) for a worker that was replaced: it also calls announce.
-- ngx_lua does not document that a header can be set in this phase, so errors of announce are ignored.
function _M.closing(judge)
  return function()
    pcall(announce)
    return judge()
  end
end

-- start(dict, replaced): call it in init_worker_by_lua. dict: a shared dict, which survives a reload. replaced() is
-- called once, when there are workers of a later configuration.
function _M.start(dict, replaced)
  local mine, done = generation, false
  dict:set(NEWEST, mine)
  ngx.timer.every(EVERY, function()
    if not done and (dict:get(NEWEST) or mine) > mine then
      done = true
      replaced()
    end
  end)
end

return _M
