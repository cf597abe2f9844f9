-- The access phase: finds the rules of a request, asks limit/rules for a verdict, and alone carries it out: only this module
-- exits, sleeps, or says a verdict, in variables. Headers and bodies are made of those in nginx/snippets: that is many times cheaper than
-- setting headers from Lua, and a flood of refusals is when it counts.
--
-- The order is by cost. The per-IP limits come before any signature is checked, so a flood of made-up tokens is turned away cheaply; the
-- per-token limits need the verified subject. Then all buckets take the request in one turn, or none does. A request with a bad token has
-- still used up its address's quota.

local client = require "sluice.client"
local count = require("sluice.count").add
local gcra = require "sluice.limit.gcra"
local limiter = require "sluice.limit.rules"
local known = require "sluice.known"
local plan = require "sluice.plan"
local quota = require "sluice.quota"
local request = require "sluice.request"
local token = require "sluice.token"

local ngx = ngx
local ngx_var, ngx_exit = ngx.var, ngx.exit
local get_method = ngx.req.get_method

local plans

-- The turn of the request at hand, see known.lua; of no use once this worker has yielded.
local turn

-- The buckets of the request at hand, one for each rule of its plan; of no use once this worker has yielded.
local keys = {}

local _M = {}

-- init(p): p is a policy of policy.lua
function _M.init(p)
  for _, rule in ipairs(p.rules) do
    quota.prepare(rule)
    limiter.prepare(rule)
  end
  client.init(p.networks)
  plans = plan.new(p)
end

local function log(verdict, rule, left)
  ngx_var.sluice_verdict = verdict
  if rule then
    ngx_var.sluice_rule = rule.name
    ngx_var.sluice_remaining = left
  end
end

local function unauthorized(why)
  known.leave(turn)
  count("unauthorized")
  log("unauthorized")
  ngx_var.sluice_reason = why
  return ngx_exit(401)
end

local function exceeded(rule, wait)
  known.leave(turn)
  count(rule.denied)
  ngx_var.sluice_retry_after = quota.retry_after(wait)
  ngx_var.sluice_quota_policy = rule.quota_policy
  ngx_var.sluice_quota = quota.exceeded(rule, wait)
  log("deny", rule, 0)
  return ngx_exit(429)
end

-- The bucket cannot be used and the rule says deny. That is our fault and not the client's, hence not 429.
local function unavailable(rule, why)
  known.leave(turn)
  log("error", rule, 0)
  ngx_var.sluice_reason = why
  return ngx_exit(503)
end

-- refused(ok, rule, detail): carries out what limit/rules returned, when that was not true
local function refused(ok, rule, detail)
  if ok == nil then
    return unavailable(rule, detail)
  end
  return exceeded(rule, detail)
end

-- fill(rules, from, to, key): the first one by itself, because LuaJIT is at a loss with loops that run once
local function fill(rules, from, to, key)
  if from <= to then
    keys[from] = rules[from].prefix .. key
    for i = from + 1, to do
      keys[i] = rules[i].prefix .. key
    end
  end
end

local function path_of()
  return ngx_var.uri
end

-- subject_of(head) -> the buyer, if the request's token is remembered; or nil
local function subject_of(head)
  if not head then
    return token.recall(ngx_var.http_authorization, ngx.now())
  elseif head.authorization ~= nil then
    return token.recall_at(head.authorization, head.authorization_length, ngx.now())
  end
end

-- set(name, text, kept): sets a variable of the request that `over` looks at. kept: the text is never collected
local function set(name, text, kept)
  if kept then
    request.set(name, text)
  else
    ngx_var[name] = text
  end
end

-- tell_over(rule, wait): the same as `exceeded`, for snippets/refuse.conf, which says the rest
local function tell_over(rule, wait)
  count(rule.denied)
  set("sluice_rule", rule.name, true)
  set("sluice_quota_policy", rule.quota_policy, true)
  set("sluice_retry_after", quota.retry_after(wait))
  set("sluice_quota", quota.exceeded(rule, wait))
end

-- plan_of(method, path) -> which rules a request is judged by, see plan.lua. path() gives the path, decoded and without a query
function _M.plan_of(method, path)
  return plan.find(plans, method, path)
end

-- over(chosen, key, n, head) -> true: a limit refuses the request, and the variables say so to snippets/refuse.conf; or false: run must be asked.
-- For the rewrite phase, where a refusal costs a fraction of what it costs in the access phase. chosen: see plan_of; key, n: what counts as one
-- client, n bytes of memory or a string; head: see head/plain.lua, or nil
function _M.over(chosen, key, n, head)
  local all, ips, rules = chosen.n, chosen.ips, chosen.rules
  local i, wait = limiter.refuses(rules, 1, ips, key, n)
  if not i and all > ips then
    local subject = subject_of(head)
    if subject then
      i, wait = limiter.refuses(rules, ips + 1, all, subject, #subject)
      if i then
        ngx_var.sluice_buyer = subject
      end
    end
  end
  if not i then
    return false
  end
  tell_over(rules[i], wait)
  return true
end

-- buyer(authorization) -> the subject of the request's token; or nil, why
local function buyer(authorization)
  local raw = token.from_headers(authorization, ngx_var.http_token)
  if not raw then
    return nil, "no token"
  end
  return token.verify(raw, ngx.now(), authorization ~= "" and authorization or nil)
end

-- What tell_one gathers over the rules of a request.
local limits, tightest, least, delay

local function tell_one(i, rule)
  local backlog = limiter.backlog[i]
  if rule.shadow then
    if limiter.over[i] then
      count(rule.denied)
      ngx_var.sluice_shadow = rule.name
    else
      count(rule.allowed)
    end
  elseif backlog then
    count(rule.allowed)
    local member, left = quota.limit(rule, backlog)
    limits = limits and limits .. ", " .. member or member
    if not tightest or left < least then
      tightest, least = rule, left
    end
    if rule.delay then
      local excess = gcra.excess(rule, backlog)
      delay = excess > delay and excess or delay
    end
  end
end

-- tell(chosen, n) -> microseconds by which the allowed request is to be held back. Tells the client its quotas, and the log.
local function tell(chosen, n)
  local rules = chosen.rules
  limits, tightest, least, delay = nil, nil, nil, 0
  tell_one(1, rules[1])
  if n > 1 then
    tell_one(2, rules[2])
    for i = 3, n do
      tell_one(i, rules[i])
    end
  end
  if tightest then
    ngx_var.sluice_quota_policy = chosen.quota_policy
    ngx_var.sluice_quota = limits
  end
  log("allow", tightest, least)
  return delay
end

function _M.run()
  if ngx_var.http_transfer_encoding and not ngx.req.is_internal() then -- not sent there yet
    return ngx.exec("@chunked")
  end
  turn = known.enter()
  local chosen = plan.find(plans, get_method(), path_of)
  local n, ips, rules = chosen.n, chosen.ips, chosen.rules
  if n == 0 then
    return
  end
  fill(rules, 1, ips, ngx_var.sluice_key)
  local subject, why
  if n > ips then
    local authorization = ngx_var.http_authorization
    subject = token.recall(authorization, ngx.now())
    local ok, i, detail
    if not subject then -- there is a signature to check: not for an address that is over its limit
      ok, i, detail = limiter.peek(rules, keys, ips)
      if not ok then
        return refused(ok, rules[i], detail)
      end
      subject, why = buyer(authorization)
    end
    if subject then
      fill(rules, ips + 1, n, subject)
    elseif chosen.enforced_token then
      ok, i, detail = limiter.admit(rules, keys, ips)
      if not ok then
        return refused(ok, rules[i], detail)
      end
      return unauthorized(why)
    else
      n = ips
      if n == 0 then
        return
      end
    end
  end
  local ok, i, detail = limiter.admit(rules, keys, n)
  if subject and (ok or i > ips) then -- an address that is over its limit is refused without a look at the token
    ngx_var.sluice_buyer = subject
  end
  if not ok then
    return refused(ok, rules[i], detail)
  end
  local us = tell(chosen, n)
  if us > 0 then
    ngx.sleep(us / 1000000)
    known.held()
  end
end

return _M
