-- The rewrite phase, before nginx selects a location: is the request well formed, which client does it count for, and
-- is it part of a flood? A purchase of a sale that refuses all buyers, and a request of a client that is over a
-- limit, are answered here by snippets/refuse.conf: that costs no coroutine, no location and no header set from Lua.

local access = require "sluice.access"
local client = require "sluice.client"
local head = require("sluice.accel").select("head", "sluice.head")
local refusal_cache = require "sluice.refusal_cache"
local request_id = require "sluice.request_id"

local ngx_var = ngx.var
local get_method, is_internal = ngx.req.get_method, ngx.req.is_internal
local re_find = ngx.re.find
local byte, find = string.byte, string.find
local tonumber = tonumber

local DOT = 46
local MAX_LINE = 256 -- bytes of a request line and its host that are cached
local MAX_BODY = 16384 -- bytes, see conf.d/10-hygiene.conf

-- The admin API has a listener of its own, which is not behind this edge. A backend does not serve these paths on its
-- public listener; this is the second barrier. The paths below /.sluice are for edges. For clients all of them are 404,
-- in every spelling.
local HIDDEN = [[^/(?:admin|(?:metrics|debug|\.sluice)(?:/|\z))]]

-- The characters after the slash of these paths and of /healthz. Other paths need no further check.
local OWN = {}
for letter in ("AaDdHhMm."):gmatch(".") do
  OWN[byte(letter)] = true
end

local _M = { MAX_LINE = MAX_LINE }

-- A cache of request lines and hosts that $sluice_odd_line, a long regular expression, has accepted: most requests are
-- like earlier ones. The expression judges the line and the host separately if there is no space in the host.
local MAX_CACHED = 1024
local lines, hosts, count = {}, {}, 0

-- has_accepted_host(host) -> whether $sluice_odd_line has accepted this host in an earlier request
function _M.has_accepted_host(host)
  return hosts[host] ~= nil
end

-- accepts_line(line, host) -> whether $sluice_odd_line accepts the request line and the host, which all readers then
-- understand alike
local function accepts_line(line, host)
  if host and lines[line] and hosts[host] then
    return true
  elseif ngx_var.sluice_odd_line ~= "0" then
    return false
  end
  if host and #line + #host <= MAX_LINE and not find(host, " ", 1, true) then
    if count >= MAX_CACHED then
      lines, hosts, count = {}, {}, 0
    end
    lines[line], hosts[host], count = true, true, count + 1
  end
  return true
end

-- accepts(line, headers) -> whether nginx will accept the request: $sluice_odd_line accepts its line and host, and the
-- body is neither too large nor chunked
local function accepts(line, headers)
  local length = headers["content-length"]
  if length and #length > 4 and tonumber(length) > MAX_BODY or headers["transfer-encoding"] then
    return false
  end
  return accepts_line(line, headers.host)
end

-- reserved(path) -> "health" or "hidden" for a path that the edge answers itself; or nil
local function reserved(path)
  if not OWN[byte(path, 2)] then
    return nil
  elseif path == "/healthz" then
    return "health"
  end
  return re_find(path, HIDDEN, "ijo") and "hidden" or nil
end

_M.reserved = reserved

-- is_preflight() -> whether a browser sends the request before one of a page of an allowed origin, see
-- conf.d/80-cors.conf
local function is_preflight()
  local wanted = ngx_var.http_access_control_request_method
  return wanted and wanted ~= "" and ngx_var.sluice_cors_origin ~= ""
end

-- judge() -> $sluice_judged:
--   malformed, too_large   the head is not acceptable; the other variables may be not set
--   own                    an internal redirect of nginx to a location that clients may not request (snippets/own.conf)
--   health, hidden         the edge answers requests for this path
--   a state                of the sale, see refusal_cache.lua: the request is refused for it
--   preflight              of a browser whose page may call the API
--   over                   a limit refuses the request
--   all else               what refusal_cache.judge returns for a purchase, or ""
-- What counts as one client is in $sluice_client_key.
function _M.judge()
  if is_internal() and byte(ngx_var.uri, 2) == DOT then
    return "own"
  end
  refusal_cache.begin()
  ngx_var.sluice_request_id = request_id.next()
  local line = ngx_var.request
  if not line then
    return "malformed"
  end
  local headers, fault = head.read(line)
  if not headers then
    return fault
  end
  local method, path = get_method(), ngx_var.uri
  local key, sound, judged = client.key(headers["x-forwarded-for"]), accepts(line, headers), ""
  local own = reserved(path)
  if own then
    ngx_var.sluice_client_key = key
    return headers["transfer-encoding"] and "malformed" or own -- no such path accepts a body
  end
  if method == "POST" then
    judged = refusal_cache.judge(path, line, headers, sound)
    if refusal_cache.is_state(judged) then
      return judged
    end
  end
  if method == "OPTIONS" and sound and is_preflight() then
    return "preflight"
  end
  if sound and access.refuses_early(access.plan_of(method, path), key, headers) then
    refusal_cache.begin()
    return "over"
  end
  ngx_var.sluice_client_key = key
  return judged
end

return _M
