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
local known = require "sluice.known"
local limiter = require "sluice.limit.rules"
local name = require "sluice.limit.name"
local plan = require "sluice.plan"
local quota = require "sluice.quota"
local request = require "sluice.request"
local step = require "sluice.step"
local token = require "sluice.token"

local ngx = ngx
local ngx_var, ngx_exit, ngx_now = ngx.var, ngx.exit, ngx.now
local get_method, is_internal = ngx.req.get_method, ngx.req.is_internal
local find, length_of, same = request.find, request.length, request.same
local ffi_string = require("ffi").string

local URI, KEY = request.variable "uri", request.variable "sluice_key"
local CHUNKS, AUTHORIZATION = request.variable "http_transfer_encoding", request.variable "http_authorization"

local plans

-- The turn of the request at hand, see known.lua; of no use once this worker has yielded.
local turn

-- Who sends the request at hand: an address, and a buyer. Of no use once this worker has yielded.
local address_name, buyer_name = name.new(), name.new()

-- What request came last, for most are like the one before: its method, its path and their plan.
local last_method, last_path, last_chosen = "", "", nil

local _M = {}

-- init(p): p is a policy of policy.lua
function _M.init(p)
  for _, rule in ipairs(p.rules) do
    quota.prepare(rule)
    limiter.prepare(rule)
  end
  client.init(p.networks)
  plans, last_chosen = plan.new(p), nil
end

-- set(variable, text, kept): sets one of the request. kept: the text is never collected
local function set(variable, text, kept)
  if kept then
    request.set(variable, text)
  else
    ngx_var[variable] = text
  end
end

-- log(verdict, rule, left): for a request that is refused
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

-- subject_of(head) -> the buyer, now in buyer_name too, if the request's token is remembered; or nil
local function subject_of(head)
  if not head then
    local authorization = ngx_var.http_authorization
    return authorization and token.recall(authorization, #authorization, ngx.now(), buyer_name)
  elseif head.authorization ~= nil then
    return token.recall(head.authorization, head.authorization_length, ngx.now(), buyer_name)
  end
end

-- tell_over(rule, wait): the same as `exceeded`, for snippets/refuse.conf, which says the rest
local function tell_over(rule, wait)
  count(rule.denied)
  set("sluice_verdict", "deny", true)
  set("sluice_rule", rule.name, true)
  set("sluice_remaining", "0", true)
  set("sluice_quota_policy", rule.quota_policy, true)
  set("sluice_retry_after", quota.retry_after(wait))
  set("sluice_quota", quota.exceeded(rule, wait))
end

-- plan_of(method, path) -> which rules a request is judged by, see plan.lua. path() gives the path, decoded and without a query
function _M.plan_of(method, path)
  return plan.find(plans, method, path)
end

-- over(chosen, whose, head) -> true: a limit refuses the request, and the variables say so to snippets/refuse.conf; or false: run must be asked.
-- For the rewrite phase, where a refusal costs a fraction of what it costs in the access phase. chosen: see plan_of; whose: see client.name;
-- head: see head/plain.lua, or nil
function _M.over(chosen, whose, head)
  local all, ips, rules = chosen.n, chosen.ips, chosen.rules
  local i, wait = limiter.refuses(rules, 1, ips, whose)
  if not i and all > ips then
    local subject = subject_of(head)
    if subject then
      i, wait = limiter.refuses(rules, ips + 1, all, buyer_name)
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

-- buyer(authorization) -> the subject of the request's token, now in buyer_name too; or nil, why
local function buyer(authorization)
  local raw = token.from_headers(authorization, ngx_var.http_token)
  if not raw then
    return nil, "no token"
  end
  return token.verify(raw, ngx.now(), buyer_name, authorization ~= "" and authorization or nil)
end

-- The request at hand, from one step of run to the next; of no use once this worker has yielded.
-- chosen: its plan, see plan.lua. subject: the buyer, if its token is remembered. ok, at, detail: what limit/rules says of it.
local chosen, subject, ok, at, detail

local function path_of()
  return last_path
end

-- chunked -> whether the body comes in chunks and the request was not yet sent where such requests go
local chunked = step(function()
  return find(CHUNKS) ~= nil and not is_internal()
end)

-- choose: by which rules
local choose = step(function()
  request.arrive()
  local method, uri = get_method(), find(URI)
  local n = length_of(uri)
  if not last_chosen or method ~= last_method or not same(uri.data, n, last_path) then
    last_method, last_path = method, ffi_string(uri.data, n)
    last_chosen = plan.find(plans, method, path_of)
  end
  chosen = last_chosen
end)

-- address: the buckets of rules by address
local address = step(function()
  local key = find(KEY)
  name.address(address_name, key.data, length_of(key))
  limiter.aim(chosen.rules, 1, chosen.ips, address_name)
end)

-- remember: the buyer, and the buckets of rules by buyer
local remember = step(function()
  local value = find(AUTHORIZATION)
  subject = value and token.recall(value.data, length_of(value), ngx_now(), buyer_name)
  if subject then
    limiter.aim(chosen.rules, chosen.ips + 1, chosen.n, buyer_name)
  end
end)

-- admit: all buckets are asked
local admit = step(function()
  ok, at, detail = limiter.admit(chosen.rules, chosen.n)
  if subject and (ok or at > chosen.ips) then -- an address that is over its limit is refused without a look at the token
    ngx_var.sluice_buyer = subject
  end
end)

-- What is told of an allowed request. limits: the field RateLimit so far, and whether its text is kept. tightest: the rule that has least left.
-- delay: microseconds by which the request is to be held back.
local limits, limits_kept, tightest, least, delay

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
    local member, left, kept = quota.limit(rule, backlog)
    if not limits then
      limits, limits_kept = member, kept
    elseif i == 2 and kept and limits_kept then
      limits, limits_kept = quota.pair(chosen.pairs, limits, member)
    else
      limits, limits_kept = limits .. ", " .. member, false
    end
    if not tightest or left < least then
      tightest, least = rule, left
    end
    if rule.delay then
      local excess = gcra.excess(rule, backlog)
      delay = excess > delay and excess or delay
    end
  end
end

-- gather: what the rules say of the request
local gather = step(function()
  local rules, n = chosen.rules, chosen.n
  limits, limits_kept, tightest, least, delay = nil, nil, nil, nil, 0
  tell_one(1, rules[1])
  if n > 1 then
    tell_one(2, rules[2])
    for i = 3, n do
      tell_one(i, rules[i])
    end
  end
end)

-- tell: the client its quotas, and the log
local tell = step(function()
  request.set("sluice_verdict", "allow")
  if tightest then
    request.set("sluice_rule", tightest.name)
    request.set("sluice_quota_policy", chosen.quota_policy)
    set("sluice_quota", limits, limits_kept)
    set("sluice_remaining", quota.number(least))
  end
end)

-- refuse_unknown -> true where nothing is left to do. The token is not one that this worker remembers: there is a signature to check, but not for an
-- address that is over its limit.
local refuse_unknown = step(function()
  local rules, ips = chosen.rules, chosen.ips
  ok, at, detail = limiter.peek(rules, ips)
  if not ok then
    refused(ok, rules[at], detail)
    return true
  end
  local why
  subject, why = buyer(ngx_var.http_authorization)
  if subject then
    limiter.aim(rules, ips + 1, chosen.n, buyer_name)
    return false
  elseif not chosen.enforced_token then
    chosen = chosen.without_token
    return chosen.n == 0
  end
  ok, at, detail = limiter.admit(rules, ips)
  if not ok then
    refused(ok, rules[at], detail)
  else
    unauthorized(why)
  end
  return true
end)

function _M.run()
  if #chunked then
    return ngx.exec("@chunked")
  end
  turn = known.enter()
  local _ = #choose
  if chosen.n == 0 then
    return
  end
  _ = #address
  subject = nil
  if chosen.n > chosen.ips then
    _ = #remember
    if not subject and #refuse_unknown then
      return
    end
  end
  _ = #admit
  if not ok then
    return refused(ok, chosen.rules[at], detail)
  end
  _ = #gather
  _ = #tell
  if delay > 0 then
    ngx.sleep(delay / 1000000)
    known.held()
  end
end

jit.off(_M.run)

return _M
