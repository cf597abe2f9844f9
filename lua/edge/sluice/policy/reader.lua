-- Converts the values of a policy to rules, and reports each error with its position. gateway/policy does the same in
-- Go: both accept the same policies.

local address = require "sluice.address"
local glob = require "sluice.glob"
local nearest = require "sluice.policy.nearest"
local quote = require "sluice.policy.quote"
local rate = require "sluice.policy.rate"

local MAX_RULES = 64 -- every rule is matched against every request
local MAX_PROXIES = 1024
local MAX_BURST = 1000000
local MAX_BACKLOG = 2 ^ 53 -- the content of a bucket is a whole number, see limit/gcra.lua

local _M = {}

-- describe(value) -> words for a message
local function describe(value)
  local kind = type(value)
  if kind == "nil" then
    return "nothing"
  elseif kind == "number" then
    return ("the number %.14g"):format(value)
  elseif kind == "string" then
    return "the string " .. quote(value)
  elseif kind == "boolean" then
    return tostring(value)
  end
  return "a " .. kind
end

_M.describe = describe

-- check_fields(t, what, names, at, wrong): reports every field that is not one of names
local function check_fields(t, what, names, at, wrong)
  if #t > 0 then
    wrong(at, "%s has named fields only (%s), and not [1]", what, table.concat(names, ", "))
  end
  local odd = {}
  for field in pairs(t) do
    local found = type(field) == "number"
    for _, name in ipairs(names) do
      found = found or name == field
    end
    if not found then
      odd[#odd + 1] = field
    end
  end
  table.sort(odd)
  for _, field in ipairs(odd) do
    local near = nearest(field, names)
    wrong(at == "" and field or at .. "." .. field, "%s has no field %s: %s", what, quote(field),
      near and 'did you mean "' .. near .. '"?' or "it has " .. table.concat(names, ", "))
  end
end

local function list(value, name, most, wrong)
  if value == nil then
    return {}
  end
  if type(value) ~= "table" then
    wrong(name, "%s must be a list, and is %s", name, describe(value))
    return {}
  end
  if #value > most then
    wrong(name, "%s has %d entries, and may have %d: remove some", name, #value, most)
    return {}
  end
  for key in pairs(value) do
    if type(key) == "string" then
      wrong(name, "%s must be a list without names: { {...}, {...} }", name)
      return {}
    end
  end
  return value
end

local function text(t, field, at, wrong)
  local value = t[field]
  if value == nil then
    return nil
  end
  if type(value) ~= "string" then
    wrong(at .. "." .. field, "%s must be a string, and is %s", field, describe(value))
  elseif value == "" then
    wrong(at .. "." .. field, "%s must not be empty: give it a value or leave it out", field)
  else
    return value
  end
end

local function choice(t, field, default, first, second, at, wrong)
  local value = t[field]
  if value == nil then
    if not default then
      wrong(at, '%s', ('a rule needs a %s: "%s" or "%s"'):format(field, first, second))
    end
    return default
  end
  if type(value) ~= "string" then
    wrong(at .. "." .. field, '%s must be "%s" or "%s", and is %s', field, first, second, describe(value))
  elseif value ~= first and value ~= second then
    local near = nearest(value, { first, second })
    local hint = near and ': did you mean "' .. near .. '"?' or ""
    wrong(at .. "." .. field, '%s must be "%s" or "%s", and is %s%s', field, first, second, quote(value), hint)
  end
  return value
end

local function set_rate(rule, t, at, wrong)
  local value = t.rate
  if value == nil then
    return wrong(at, 'a rule needs a rate such as "20r/s"')
  end
  if type(value) ~= "string" then
    return wrong(at .. ".rate", 'rate must be a string such as "20r/s", and is %s', describe(value))
  end
  local count, period = rate.parse(value)
  if not count then
    return wrong(at .. ".rate", "rate %s %s", quote(value), period)
  end
  rule.rate, rule.count, rule.period = value, count, period
end

local function set_burst(rule, t, at, wrong)
  local value = t.burst
  if value == nil then
    value = 0
  elseif type(value) ~= "number" then
    wrong(at .. ".burst", "burst must be a whole number, and is %s", describe(value))
    value = 0
  elseif not (value >= 0 and value <= MAX_BURST and value % 1 == 0) then
    wrong(at .. ".burst", "burst must be a whole number from 0 to %d, and is %.14g", MAX_BURST, value)
    value = 0
  end
  rule.burst = value + 0 -- not -0
end

-- The state of a bucket must stay a whole number.
local function check_room(rule, at, wrong)
  if rule.period and (rule.burst + 1) * rule.period > MAX_BACKLOG then
    wrong(at, "burst %d at this rate takes %.0f years to refill: lower the burst or raise the rate", rule.burst,
      math.floor((rule.burst + 1) * rule.period / rule.count / (365 * 24 * 3600 * 1e6)))
  end
end

local function set_match(rule, t, at, wrong)
  local value = t.match
  if value == nil then
    return
  end
  at = at .. ".match"
  if type(value) ~= "table" then
    return wrong(at, 'match must be a table such as { method = "POST", path = "/v1/sales/*/orders" }, and is %s',
      describe(value))
  end
  check_fields(value, "match", { "method", "path" }, at, wrong)
  rule.method = text(value, "method", at, wrong)
  if rule.method and (#rule.method > 20 or not rule.method:find("^[A-Z]+$")) then
    wrong(at .. ".method", 'method %s is not an HTTP method in capitals such as "POST"', quote(rule.method))
  end
  local path = text(value, "path", at, wrong)
  if path then
    local why = glob.fault(path)
    if why then
      wrong(at .. ".path", "path %s %s", quote(path), why)
    end
    rule.path = path
  end
end

-- set_network(rule, t, at, wrong): rule.network is how many bytes of an IPv6 address are one client, or nil: 8
local function set_network(rule, t, at, wrong)
  local bits = t.ipv6_prefix
  if bits == nil then
    return
  end
  at = at .. ".ipv6_prefix"
  if rule.key == "token" then
    wrong(at, 'ipv6_prefix is for rules with key = "ip": remove it')
  elseif bits == 56 or bits == 48 then
    rule.network = bits / 8
  elseif bits ~= 64 then
    wrong(at, "ipv6_prefix must be 64, 56 or 48, and is %s", describe(bits))
  end
end

-- The minimum of burst / rate of a rule of the fleet (us). An edge may spend a leased slot within this time. If the
-- time were shorter, slots would expire before edges could spend them.
local MIN_FLEET_WINDOW = 10000

-- check_fleet(rule, at, wrong): reports fields that rules of the fleet cannot have
local function check_fleet(rule, at, wrong)
  if rule.delay then
    wrong(at .. ".delay", 'delay is for rules with scope = "edge": remove it')
  end
  local least = rule.period and math.max(1, math.ceil(MIN_FLEET_WINDOW * rule.count / rule.period))
  if least and rule.burst < least then
    wrong(at .. ".burst", 'a rule with scope = "fleet" needs a burst of at least %.0f at this rate, and has %.0f',
      least, rule.burst)
  end
end

local RULE = { "name", "key", "rate", "burst", "match", "delay", "mode", "on_error", "ipv6_prefix", "scope" }

local function read_rule(t, at, wrong)
  if type(t) ~= "table" then
    return wrong(at, "a rule is a table, and not %s", describe(t))
  end
  check_fields(t, "a rule", RULE, at, wrong)
  local rule = { name = text(t, "name", at, wrong) }
  if t.name == nil then
    wrong(at, "a rule needs a name, which logs and refusals contain")
  elseif rule.name and (#rule.name > 32 or not rule.name:find("^%w[%w_-]*$")) then
    wrong(at .. ".name", 'name %s must be 1 to 32 letters, digits, "-" or "_", the first a letter or a digit',
      quote(rule.name))
  elseif rule.name == "concurrency" then -- see snippets/problems.conf
    wrong(at .. ".name", 'name %s is reserved for the limit of concurrent requests: choose another', quote(rule.name))
  end
  rule.key = choice(t, "key", nil, "ip", "token", at, wrong)
  set_rate(rule, t, at, wrong)
  set_burst(rule, t, at, wrong)
  check_room(rule, at, wrong)
  set_match(rule, t, at, wrong)
  if t.delay ~= nil and type(t.delay) ~= "boolean" then
    wrong(at .. ".delay", "delay must be true or false, and is %s", describe(t.delay))
  end
  rule.delay = t.delay == true
  rule.shadow = choice(t, "mode", "enforce", "enforce", "shadow", at, wrong) == "shadow"
  -- A shadow rule does not refuse when its bucket cannot be used.
  rule.lenient = choice(t, "on_error", "deny", "deny", "allow", at, wrong) == "allow" or rule.shadow
  set_network(rule, t, at, wrong)
  rule.fleet = choice(t, "scope", "edge", "edge", "fleet", at, wrong) == "fleet"
  if rule.fleet then
    check_fleet(rule, at, wrong)
  end
  return rule
end

-- complete(rule): adds the fields that follow from the others
local function complete(rule)
  rule.tolerance = rule.burst * rule.period
  -- The names of its counters.
  rule.allowed, rule.failed = "allow " .. rule.name, "error " .. rule.name
  rule.denied = (rule.shadow and "shadow " or "deny ") .. rule.name
  -- The prefix of its buckets contains the key (its first letter: a long prefix takes memory), the rate, which is the
  -- unit of their state, and the networks that it counts. If one of these changes, the rule starts with empty buckets.
  rule.prefix = (rule.shadow and "shadow:" or "") .. rule.name .. ":" .. rule.key:sub(1, 1) .. rule.rate .. ":"
    .. (rule.network and rule.network .. ":" or "")
end

-- read_networks(t, wrong) -> the trusted networks
local function read_networks(t, wrong)
  local networks = {}
  for i, value in ipairs(list(t.trusted_proxies, "trusted_proxies", MAX_PROXIES, wrong)) do
    local at = "trusted_proxies." .. i
    local network = type(value) == "string" and address.network(value)
    if type(value) ~= "string" then
      wrong(at, 'trusted_proxies holds strings such as "10.0.0.0/8", and not %s', describe(value))
    elseif not network then
      wrong(at, 'trusted_proxies: %s is not a network such as "10.0.0.0/8" or "2001:db8::/32"', quote(value))
    end
    networks[i] = network
  end
  return networks
end

-- read_rules(t, wrong) -> the rules in the order of the file
local function read_rules(t, wrong)
  if t.rules == nil then
    wrong("", "rules is missing: write rules = {} to limit nothing")
  end
  local rules, seen = {}, {}
  for i, value in ipairs(list(t.rules, "rules", MAX_RULES, wrong)) do
    local at = "rules." .. i
    local rule = read_rule(value, at, wrong)
    if rule and rule.name then
      if seen[rule.name] then
        wrong(at .. ".name", "rule %d is named %s like rule %d: names must differ", i, quote(rule.name),
          seen[rule.name])
      else
        seen[rule.name] = i
      end
    end
    rules[i] = rule
  end
  return rules
end

-- read(t, report) -> policy; or nil after errors: report(path, format, ...) is called for each. A policy has
--   networks   the trusted ones
--   rules      in the order of the file
--   repeats    whether refusals of whole sales are answered from memory
function _M.read(t, report)
  local good = true
  local function wrong(...)
    good = false
    report(...)
  end
  check_fields(t, "a policy", { "trusted_proxies", "rules", "repeat_refusals" }, "", wrong)
  if t.repeat_refusals ~= nil and type(t.repeat_refusals) ~= "boolean" then
    wrong("repeat_refusals", "repeat_refusals must be true or false, and is %s", describe(t.repeat_refusals))
  end
  local policy = {
    networks = read_networks(t, wrong), rules = read_rules(t, wrong), repeats = t.repeat_refusals ~= false,
  }
  if not good then
    return nil
  end
  for _, rule in ipairs(policy.rules) do
    complete(rule)
  end
  return policy
end

return _M
