-- The access phase. A request is judged in this order:
--
--   1. plan.lua finds the rules that cover its method and path
--   2. the limits by address: a flood of made-up tokens is refused before a signature is verified. A request with a
--      token in the verified cache skips this step; step 5 applies the same limits
--   3. the token is verified, if a rule counts by buyer
--   4. the rules of the fleet decide, if there are any: fleet.lua
--   5. the buckets of all rules take the request together, or none does: limit/rules.lua
--   6. the quotas go to the client and to the log, in variables that nginx/snippets turn into headers and bodies
--
-- Most requests over a limit do not get here: rewrite.lua calls refuses_early and refuses them. To change a decision,
-- change both refuses_early and judge.
--
-- accel.select takes the module in accel/ if this nginx has it enabled, else the plain one. To test a change of a plain
-- module, set SLUICE_EDGE_PLAIN=all.
--
-- limit/rules.lua decides; only this module exits, sleeps and sets the variables of a verdict. A request with a bad
-- token still uses the quota of its address.

local client = require "sluice.client"
local count = require("sluice.count").add
local each = require("sluice.accel").select("each", "sluice.each")
local fleet = require "sluice.fleet"
local follow = require "sluice.token.follow"
local gcra = require "sluice.limit.gcra"
local limiter = require "sluice.limit.rules"
local plan = require "sluice.plan"
local quota = require "sluice.quota"
local refusal_cache = require "sluice.refusal_cache"
local split = require("sluice.accel").select("split", "sluice.split") -- ends a compiled trace, decides nothing
local variables = require("sluice.accel").select("variables", "sluice.variables")
local token = require "sluice.token"

local ngx = ngx
local ngx_var, ngx_exit, ngx_now = ngx.var, ngx.exit, ngx.now
local max, min = math.max, math.min
local get_variable, set_variable = variables.get, variables.set
local get_method, is_internal = ngx.req.get_method, ngx.req.is_internal

-- Below, `chosen` is a plan (plan.lua): the first `ip_n` of its `n` rules count by address, the others by buyer.
local plans

local _M = {}

-- init(policy): see policy.lua. Call it in init_worker_by_lua, after rules.init and fleet.init.
function _M.init(policy)
  for _, rule in ipairs(policy.rules) do
    quota.prepare(rule)
    if rule.fleet then
      fleet.prepare(rule)
    else
      limiter.prepare(rule)
    end
  end
  client.init(policy.networks)
  plans = plan.new(policy)
end

-- set(name, text, is_kept): sets a variable. is_kept: the text exists for the lifetime of the worker
local function set(name, text, is_kept)
  if is_kept then
    set_variable(name, text)
  else
    ngx_var[name] = text
  end
end

-- set_refusal(rule, wait): counts a refusal by a rule and sets its variables. wait: us until the rule admits the client
local function set_refusal(rule, wait)
  count(rule.denied)
  set_variable("sluice_rule", rule.name)
  set_variable("sluice_quota_policy", rule.quota_policy)
  set("sluice_quota", quota.exceeded(rule, wait)) -- text, is_kept
  set("sluice_retry_after", quota.retry_after(wait))
end

-- refuse(ok, rule, detail): ends the request with a refusal. The arguments are what limit/rules.lua returned. ok: false
-- if the request is over the limit (429, detail is the wait); nil if the bucket cannot be used (503, detail is the
-- reason)
local function refuse(ok, rule, detail)
  ngx_var.sluice_remaining = "0"
  if ok == false then
    ngx_var.sluice_verdict = "deny"
    set_refusal(rule, detail)
    return ngx_exit(429)
  end
  -- The rule has on_error = "deny". The client is not at fault, hence not 429.
  ngx_var.sluice_verdict = "error"
  ngx_var.sluice_rule = rule.name
  ngx_var.sluice_reason = detail
  return ngx_exit(503)
end

local function unauthorized(why)
  count("unauthorized")
  ngx_var.sluice_verdict = "unauthorized"
  ngx_var.sluice_reason = why
  return ngx_exit(401)
end

-- verify(authorization) -> the buyer that the request's token names; or nil, err
local function verify(authorization)
  local text, first = token.find(authorization, get_variable("http_token"))
  if not text then
    return nil, "no token"
  end
  return token.verify(text, ngx_now(), first)
end

-- What the rules report of an allowed request:
--   limits            the field RateLimit
--   tightest, least   the rule with the least quota left, and that quota
--   delay             microseconds by which the request is to be delayed
local limits, tightest, least, delay

local report = each(function(i, rules)
  local rule, backlog = rules[i], limiter.backlog[i]
  if limiter.over[i] then -- only shadow rules are over their limit here; rule.denied is their counter "shadow NAME"
    count(rule.denied)
    ngx_var.sluice_shadow = rule.name
  elseif rule.shadow then
    count(rule.allowed)
  elseif backlog then
    count(rule.allowed)
    local member, left = quota.limit(rule, backlog)
    limits = limits and limits .. ", " .. member or member
    if not tightest or left < least then
      tightest, least = rule, left
    end
    if rule.delay then
      delay = max(delay, gcra.excess(rule, backlog))
    end
  end
end)

-- allow(chosen) -> microseconds by which the request is to be delayed. It sets the variables of an allowed request.
-- chosen: see plan.lua
local function allow(chosen)
  limits, tightest, least, delay = nil, nil, nil, 0
  report(1, chosen.n, chosen.rules)
  set_variable("sluice_verdict", "allow")
  if tightest then
    set_variable("sluice_rule", tightest.name)
    set("sluice_remaining", quota.number(least))
    set_variable("sluice_quota_policy", chosen.quota_policy)
    ngx_var.sluice_quota = limits
  end
  return delay
end

-- plan_of(method, path) -> the rules of a request, see plan.lua
function _M.plan_of(method, path)
  return plan.find(plans, method, path)
end

-- refuses_early(chosen, key, headers) -> true: a limit refuses the request, and the variables for snippets/refuse.conf
-- are set; or false: run decides. For the rewrite phase, where a refusal is much cheaper. A buyer is judged only when
-- the verified cache has the token. chosen: of plan_of; headers: see head.lua
function _M.refuses_early(chosen, key, headers)
  local rules, ip_n, n = chosen.rules, chosen.ip_n, chosen.n
  local i, wait = limiter.refuses(rules, 1, ip_n, key)
  if not i and n > ip_n then
    local authorization = headers.authorization
    local buyer = authorization and token.cached(authorization, ngx_now())
    if buyer then
      i, wait = limiter.refuses(rules, ip_n + 1, n, buyer)
      if i then
        ngx_var.sluice_buyer = buyer
      end
    end
  end
  if not i then
    return false
  end
  set_refusal(rules[i], wait)
  return true
end

-- admit(chosen, n, fleet_n, buyer) -> ok, rule, detail, taken, by_ip: what limit/rules.lua returns for the first n
-- rules and fleet.lua for the first fleet_n rules of the fleet, which count the request together or not at all. by_ip:
-- whether the rule that refuses has the key "ip". A rule of the fleet may call Redis, so these rules decide only about
-- requests that the other rules admit.
local function admit(chosen, n, fleet_n, buyer)
  local rules, ip_n = chosen.rules, chosen.ip_n
  local ok, i, detail, taken
  if fleet_n > 0 then
    ok, i, detail = limiter.peek(rules, n)
    if not ok then
      return ok, rules[i], detail, nil, i <= ip_n
    end
    local key = get_variable("sluice_client_key")
    local result
    ok, result, detail = fleet.admit(chosen.fleet, fleet_n, key, buyer)
    if not ok then
      local rule = result
      return ok, rule, detail, nil, rule.key == "ip"
    end
    taken = result
    refusal_cache.delayed() -- the request may have waited for Redis
    -- Other requests may have used the limiter meanwhile.
    limiter.aim(rules, 1, min(n, ip_n), key)
    if n > ip_n then
      limiter.aim(rules, ip_n + 1, n, buyer)
    end
  end
  ok, i, detail = limiter.admit(rules, n)
  if not ok then
    if taken then
      fleet.refund(taken)
    end
    return ok, rules[i], detail, nil, i <= ip_n
  end
  return true, nil, nil, taken
end

-- accept_fleet(taken): counts the rules of the fleet of an admitted request. taken: of admit
local function accept_fleet(taken)
  local shadow = taken and fleet.accept(taken)
  if shadow then
    ngx_var.sluice_shadow = shadow
  end
end

-- reject_token(chosen, turn, why): refuses a request without a valid token, which uses the quota of its address
local function reject_token(chosen, turn, why)
  refusal_cache.leave(turn)
  local ok, rule, detail, taken = admit(chosen, chosen.ip_n, chosen.fleet_ip_n)
  if not ok then
    return refuse(ok, rule, detail)
  end
  accept_fleet(taken)
  return unauthorized(why)
end

-- identify(chosen, turn, has_waited) -> the plan that applies to the request, and its buyer if it has a valid token; or
-- nil: nothing is left to judge. Either the request was refused and its response is set, or no rule remains and it
-- passes.
--   turn         see judge
--   has_waited   whether the request has waited for a new key, with which its token may be signed (token/follow.lua)
local function identify(chosen, turn, has_waited)
  local rules, ip_n = chosen.rules, chosen.ip_n
  local authorization = get_variable("http_authorization")
  local buyer = authorization and token.cached(authorization, ngx_now())
  if not buyer then
    local ok, i, detail = limiter.peek(rules, ip_n)
    if not ok then
      refusal_cache.leave(turn)
      return refuse(ok, rules[i], detail)
    end
    local why
    split()
    buyer, why = verify(authorization)
    split()
    if why == token.UNKNOWN_KEY and not has_waited and follow.await(ngx_now()) then
      refusal_cache.delayed()
      limiter.aim(rules, 1, ip_n, get_variable("sluice_client_key")) -- other requests have used the limiter meanwhile
      return identify(chosen, turn, true)
    elseif not buyer and chosen.requires_token then
      return reject_token(chosen, turn, why)
    elseif not buyer then
      return chosen.without_token
    end
  end
  limiter.aim(rules, ip_n + 1, chosen.n, buyer)
  return chosen, buyer
end

-- judge(turn) -> the plan of an allowed request, for allow; or nil: it was refused, or no rule covers it and it passes.
-- turn: of refusal_cache.enter; refusal_cache.leave gets it when the request is refused
local function judge(turn)
  local chosen, buyer = _M.plan_of(get_method(), get_variable("uri")), nil
  if chosen.n + chosen.fleet_n == 0 then
    return nil
  end
  limiter.aim(chosen.rules, 1, chosen.ip_n, get_variable("sluice_client_key"))
  if chosen.reads_token then
    chosen, buyer = identify(chosen, turn)
    if not chosen then
      return nil
    end
  end
  local ok, rule, detail, taken, by_ip = admit(chosen, chosen.n, chosen.fleet_n, buyer)
  if buyer and (ok or not by_ip) then
    ngx_var.sluice_buyer = buyer
  end
  if not ok then
    refusal_cache.leave(turn)
    return refuse(ok, rule, detail)
  end
  accept_fleet(taken)
  return chosen
end

function _M.run()
  -- Requests with a chunked body have a location of their own, see snippets/server.conf.
  if get_variable("http_transfer_encoding") and not is_internal() then
    return ngx.exec("@chunked")
  end
  local turn = refusal_cache.enter()
  local chosen = judge(turn)
  if not chosen then
    return
  end
  split()
  local wait = allow(chosen)
  if wait > 0 then
    ngx.sleep(wait / 1000000)
    refusal_cache.delayed()
  end
end

return _M
