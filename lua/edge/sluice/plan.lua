-- Finds the rules of a request. They depend on its method and path only. Each method has a decision tree, with one
-- decision for each path pattern of its rules; a plan is a leaf. A branch is built when the first request takes it.

local glob = require "sluice.glob"

local re_find = ngx.re.find
local OPTIONS = glob.options

local _M = {}

-- leaf(rules) -> a plan:
--   rules, n         the rules with the key "ip" first, then those with "token", each in the order of the file
--   ip_n             how many of them have the key "ip"
--   requires_token   an enforced rule has the key "token": a request needs a valid token
--   fleet, fleet_n   the rules with scope = "fleet", in the same order; rules, n and ip_n are those of the edge only
--   fleet_ip_n       how many of them have the key "ip"
--   reads_token      a rule has the key "token", and may be a shadow rule, which requires no token
--   quota_policy     the field RateLimit-Policy of an allowed request
--   without_token    the plan of a request that needs no token and has none; nil if no rule remains
local function leaf(rules)
  local plan = { rules = {}, ip_n = 0, fleet = {}, fleet_ip_n = 0, reads_token = false, requires_token = false }
  local policies, by_ip = {}, {}
  for _, rule in ipairs(rules) do
    local list = rule.fleet and plan.fleet or plan.rules
    list[#list + 1] = rule
    if rule.key == "ip" then
      by_ip[#by_ip + 1] = rule
      local count = rule.fleet and "fleet_ip_n" or "ip_n"
      plan[count] = plan[count] + 1
    else
      plan.reads_token = true
      plan.requires_token = plan.requires_token or not rule.shadow
    end
    if not rule.shadow and not rule.fleet then
      policies[#policies + 1] = rule.quota_policy
    end
  end
  plan.n, plan.fleet_n = #plan.rules, #plan.fleet
  plan.quota_policy = table.concat(policies, ", ")
  if plan.reads_token and not plan.requires_token and #by_ip > 0 then
    plan.without_token = leaf(by_ip)
  end
  return plan
end

-- node(candidates, i, chosen, known) -> the part of the tree that decides about the candidates from i on
-- chosen: the candidates before i that apply. known: by pattern, whether it matches.
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

-- Plans that are cached by path, for each method. A shop has fewer paths. When a client requests many others, the cache
-- is emptied.
local MEMOS = 256

local function learn(tree, path)
  local plan = walk(tree.root, path)
  if tree.memos >= MEMOS then
    tree.memo, tree.memos = {}, 0
  end
  tree.memo[path], tree.memos = plan, tree.memos + 1
  return plan
end

-- find(plans, method, path) -> plan. path: decoded and without a query
function _M.find(plans, method, path)
  local tree = plans[method] or plans[""]
  if not tree.root.regex then
    return tree.root
  end
  return tree.memo[path] or learn(tree, path)
end

return _M
