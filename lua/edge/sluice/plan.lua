-- Which rules a request is judged by, found with as little work as possible. All that follows from method and path alone is worked out once:
-- a plan is the end of a short tree of decisions, one for every path pattern that the request's method leaves open, and is built when the
-- first request comes that way.

local glob = require "sluice.glob"
local quota = require "sluice.quota"

local re_find = ngx.re.find
local OPTIONS = glob.options

local _M = {}

-- leaf(rules) -> a plan:
--   rules, n         those with the key "ip" first, each kind in the order of the file
--   ips              how many of them have the key "ip"
--   enforced_token   some rule with the key "token" is enforced: a request needs a valid token
--   quota_policy     the field RateLimit-Policy of an allowed request
--   pairs            for quota.pair
--   without_token    the plan of a request that need not have a token and has none
local function leaf(rules)
  local plan = { rules = rules, n = #rules, ips = 0, enforced_token = false, pairs = quota.pairs() }
  local policies = {}
  for _, rule in ipairs(rules) do
    if rule.key == "ip" then
      plan.ips = plan.ips + 1
    elseif not rule.shadow then
      plan.enforced_token = true
    end
    if not rule.shadow then
      policies[#policies + 1] = rule.quota_policy
    end
  end
  plan.quota_policy = table.concat(policies, ", ")
  if plan.ips < plan.n and not plan.enforced_token then
    plan.without_token = leaf({ unpack(rules, 1, plan.ips) })
  end
  return plan
end

-- node(candidates, i, chosen, known) -> the rest of the tree once it is settled whether the rules before i apply
-- chosen: those of them that do. known: what each pattern has already been found to be.
local function node(candidates, i, chosen, known)
  local rule = candidates[i]
  if not rule then
    return leaf(chosen)
  end
  local applies = not rule.path or known[rule.path]
  if applies == nil then
    return { regex = glob.regex(rule.path), candidates = candidates, i = i, chosen = chosen, known = known }
  end
  local after = { unpack(chosen) }
  if applies then
    after[#after + 1] = rule
  end
  return node(candidates, i + 1, after, known)
end

local function branch(at, applies)
  local known = setmetatable({ [at.candidates[at.i].path] = applies }, { __index = at.known })
  return node(at.candidates, at.i, at.chosen, known)
end

local function walk(at, path)
  if not at.regex then
    return at
  end
  if re_find(path, at.regex, OPTIONS) then
    at.yes = at.yes or branch(at, true)
    return walk(at.yes, path)
  end
  at.no = at.no or branch(at, false)
  return walk(at.no, path)
end

-- new(policy) -> plans, for find
function _M.new(policy)
  local ordered, methods = {}, { [""] = true }
  for _, key in ipairs { "ip", "token" } do
    for _, rule in ipairs(policy.rules) do
      if rule.key == key then
        ordered[#ordered + 1] = rule
      end
      methods[rule.method or ""] = true
    end
  end
  local plans = {}
  for method in pairs(methods) do
    local candidates = {}
    for _, rule in ipairs(ordered) do
      if not rule.method or rule.method == method then
        candidates[#candidates + 1] = rule
      end
    end
    plans[method] = { root = node(candidates, 1, {}, {}), memo = {}, memos = 0 }
  end
  return plans
end

-- Paths whose plan is remembered, for each method: a sale has few, and whoever makes up others has them forgotten again and again.
local MEMOS = 256

local function learn(tree, path)
  local plan = walk(tree.root, path)
  if tree.memos >= MEMOS then
    tree.memo, tree.memos = {}, 0
  end
  tree.memo[path], tree.memos = plan, tree.memos + 1
  return plan
end

-- find(plans, method, path_of) -> plan; path_of() gives the path, decoded and without a query, and is called only when it matters
function _M.find(plans, method, path_of)
  local tree = plans[method] or plans[""]
  if not tree.root.regex then
    return tree.root
  end
  local path = path_of()
  return tree.memo[path] or learn(tree, path)
end

return _M
