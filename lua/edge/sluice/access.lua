-- The access phase: finds the client and the rules of a request, asks limit/req for a verdict, and alone carries it out: only this module
-- exits, sleeps, or touches headers and variables.
--
-- The order is by cost. The per-IP limits come before any signature is checked, so a flood of made-up tokens is turned away cheaply; the
-- per-token limits need the verified subject. Then all buckets take the request in one turn, or none does. A request with a bad token has
-- still used up its address's quota.

local address = require "sluice.address"
local gcra = require "sluice.limit.gcra"
local glob = require "sluice.glob"
local quota = require "sluice.quota"
local refusal = require "sluice.refusal"
local req = require "sluice.limit.req"
local token = require "sluice.token"

local ngx = ngx
local ngx_var, ngx_header, ngx_req = ngx.var, ngx.header, ngx.req
local get_method = ngx_req.get_method

local policy

-- What the request at hand is judged by: parallel arrays, filled anew by each request and of no use once this worker has yielded.
local rules, keys = {}, {}

local _M = {}

-- init(p): p is a policy of policy.lua
function _M.init(p)
  for _, rule in ipairs(p.rules) do
    quota.prepare(rule)
    rule.body = refusal.quota_exceeded(rule.name)
  end
  policy = p
end

-- answer(status, body): ends the request. The body of the request is read away first, or it would be taken for the next request on
-- this connection.
local function answer(status, body)
  ngx_req.discard_body()
  ngx.status = status
  ngx_header["Content-Type"] = refusal.content_type
  ngx_header["Content-Length"] = #body
  ngx_header["Cache-Control"] = "no-store"
  ngx.print(body)
  return ngx.exit(ngx.HTTP_OK)
end

local function log(verdict, rule, left)
  ngx_var.sluice_verdict = verdict
  if rule then
    ngx_var.sluice_rule = rule.name
    ngx_var.sluice_remaining = left
  end
end

local function unauthorized(why)
  req.count("unauthorized")
  log("unauthorized")
  ngx_var.sluice_reason = why
  ngx_header["WWW-Authenticate"] = 'Bearer error="invalid_token"'
  return answer(401, refusal.unauthorized)
end

local function exceeded(rule, wait)
  req.count("denied:" .. rule.name)
  log("deny", rule, 0)
  ngx_header["Retry-After"] = quota.retry_after(wait)
  ngx_header["RateLimit-Policy"] = rule.quota_policy
  ngx_header["RateLimit"] = quota.exceeded(rule, wait)
  return answer(429, rule.body)
end

-- The bucket cannot be used and the rule says deny. That is our fault and not the client's, hence not 429.
local function unavailable(rule, why)
  log("error", rule, 0)
  ngx_var.sluice_reason = why
  ngx_header["Retry-After"] = quota.retry_after(0)
  return answer(503, refusal.unavailable)
end

-- refused(ok, i, detail): what limit/req returned when it was not true
local function refused(ok, i, detail)
  if ok == nil then
    return unavailable(rules[i], detail)
  end
  return exceeded(rules[i], detail)
end

-- gather(list, n, method) -> n: appends the rules of list that cover the request
local path -- canonical, of the request at hand; nil until a rule asks for it
local function gather(list, n, method)
  for i = 1, #list do
    local rule = list[i]
    if not rule.method or rule.method == method then
      local pieces = rule.pieces
      if pieces and not path then
        path = glob.canonical(ngx_var.uri)
      end
      if not pieces or glob.match(pieces, path) then
        n = n + 1
        rules[n] = rule
      end
    end
  end
  return n
end

local function fill_keys(from, to, key)
  for i = from, to do
    keys[i] = rules[i].prefix .. key
  end
end

local function client()
  local peer = ngx_var.binary_remote_addr
  local networks = policy.networks
  if #networks == 0 then
    return address.client(networks, peer)
  end
  local bytes = address.client(networks, peer, ngx_var.http_x_forwarded_for)
  if bytes ~= peer then
    ngx_var.sluice_client = address.format(bytes)
  end
  return bytes
end

local function enforced(from, to)
  for i = from, to do
    if not rules[i].shadow then
      return true
    end
  end
  return false
end

-- tell(n) -> microseconds by which the admitted request is to be held back. Writes the quota headers and what the log needs.
local function tell(n)
  local policies, limits, tightest, least
  local delay = 0
  for i = 1, n do
    local rule, backlog = rules[i], req.backlog[i]
    if rule.shadow then
      if req.over[i] then
        req.count("shadow:" .. rule.name)
        ngx_var.sluice_shadow = rule.name
      end
    elseif backlog then
      local member, left = quota.limit(rule, backlog)
      policies = policies and policies .. ", " .. rule.quota_policy or rule.quota_policy
      limits = limits and limits .. ", " .. member or member
      if not least or left < least then
        tightest, least = rule, left
      end
      if rule.delay then
        local excess = gcra.excess(rule, backlog)
        delay = excess > delay and excess or delay
      end
    end
  end
  if tightest then
    ngx_header["RateLimit-Policy"] = policies
    ngx_header["RateLimit"] = limits
    log("allow", tightest, least)
  end
  return delay
end

function _M.run()
  path = nil
  local method = get_method()
  local n = gather(policy.ip, 0, method)
  local all = gather(policy.token, n, method)
  if all == 0 then
    return
  end
  fill_keys(1, n, address.bucket(client()))
  if all > n then
    local ok, i, detail = req.peek(rules, keys, n)
    if not ok then
      return refused(ok, i, detail)
    end
    local raw = token.from_headers(ngx_var.http_authorization, ngx_var.http_token)
    local subject, why
    if raw then
      subject, why = token.verify(raw, ngx.time())
    end
    if subject then
      ngx_var.sluice_buyer = subject
      fill_keys(n + 1, all, subject)
    elseif enforced(n + 1, all) then
      ok, i, detail = req.admit(rules, keys, n)
      if not ok then
        return refused(ok, i, detail)
      end
      return unauthorized(why or "no token")
    else
      all = n
    end
  end
  local ok, i, detail = req.admit(rules, keys, all)
  if not ok then
    return refused(ok, i, detail)
  end
  local delay = tell(all)
  if delay > 0 then
    ngx.sleep(delay / 1000000)
  end
end

return _M
