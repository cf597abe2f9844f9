-- Writes the metrics of the edge in the text format of Prometheus. Names and help texts are the same as in the Go
-- gateway.

local bounds = require("sluice.upstream").BOUNDS
local bypass_list = require "sluice.refusal_cache.bypass_list"
local rules = require "sluice.limit.rules"

local ngx = ngx

local _M = {}

local function line(out, name, labels, value)
  out[#out + 1] = ("sluice_edge_%s%s %.0f\n"):format(name, labels, value)
end

local function head(out, name, kind, help)
  out[#out + 1] = ("# HELP sluice_edge_%s %s\n# TYPE sluice_edge_%s %s\n"):format(name, help, name, kind)
end

local function escaped(text)
  return (text:gsub('[\\"]', "\\%0"))
end

local TIMEOUT = 500 -- ms, of a connection to `sluice edge`

local in_force = ""
local parent

-- build_info(version) -> the metric of that name. version: of sluice, or nil
local function build_info(version)
  local n = ngx.config.nginx_version
  local labels = ('nginx_version="%d.%d.%d",version="%s"'):format(n / 1000000, n / 1000 % 1000, n % 1000,
    escaped(version or "unknown"))
  return "# HELP sluice_build_info 1. The labels describe the program.\n# TYPE sluice_build_info gauge\n" ..
    "sluice_build_info{" .. labels .. "} 1\n"
end

-- init(policy, version, socket): writes the rules of the policy in force. version: of sluice, or nil; socket: from
-- which `sluice edge` sends its own metrics, or nil
function _M.init(policy, version, socket)
  parent = socket
  local out = { build_info(version) }
  head(out, "rule_info", "gauge", "1 for each rule of the policy in force. The labels describe the rule.")
  for _, rule in ipairs(policy.rules) do
    local match = (rule.method or "") .. (rule.method and rule.path and " " or "") .. (rule.path or "")
    local labels = '{burst="%d",key="%s",match="%s",mode="%s",on_error="%s",rate="%.6gr/s",rule="%s",scope="%s"}'
    line(out, "rule_info", labels:format(rule.burst, rule.key, escaped(match),
      rule.shadow and "shadow" or "enforce", rule.lenient and "allow" or "deny", rule.count / rule.period * 1e6,
      rule.name, rule.fleet and "fleet" or "edge"), 1)
  end
  in_force = table.concat(out)
end

-- family(out, counters, name, label, values, prefix, help): a counter with one label. prefix: of the names of its
-- counters, which end in the value of the label
local function family(out, counters, name, label, values, prefix, help)
  head(out, name, "counter", help)
  for _, value in ipairs(values) do
    line(out, name, ('{%s="%s"}'):format(label, value), counters:get(prefix .. value) or 0)
  end
end

-- single(out, name, kind, value, help): a metric without labels
local function single(out, name, kind, value, help)
  head(out, name, kind, help)
  line(out, name, "", value)
end

-- times(out, names, counters): the response times of each backend, and the failures of requests to them
local function times(out, names, counters)
  head(out, "upstream_seconds", "histogram", "Time until a backend began to respond.")
  for _, name in ipairs(names) do
    local backend = name:match("^upstream_ms/(.+)$")
    if backend then
      local so_far = 0
      for i = 1, #bounds + 1 do
        so_far = so_far + (counters:get(("upstream/%d/%s"):format(i, backend)) or 0)
        line(out, "upstream_seconds_bucket", ('{upstream="%s",le="%s"}'):format(backend, bounds[i] or "+Inf"), so_far)
      end
      local sum = 'sluice_edge_upstream_seconds_sum{upstream="%s"} %.3f\n'
      out[#out + 1] = sum:format(backend, counters:get(name) / 1000)
      line(out, "upstream_seconds_count", ('{upstream="%s"}'):format(backend), so_far)
    end
  end
  head(out, "upstream_failures_total", "counter", "Failed attempts to reach a backend, by failure.")
  for _, name in ipairs(names) do
    local failure, backend = name:match("^failure/(%a+)/(.+)$")
    if failure then
      local labels = ('{failure="%s",upstream="%s"}'):format(failure, backend)
      line(out, "upstream_failures_total", labels, counters:get(name) or 0)
    end
  end
end

-- verdicts(out, names, counters): the requests of each rule
local function verdicts(out, names, counters)
  head(out, "requests_total", "counter", "Requests by rule and verdict.")
  for _, name in ipairs(names) do
    local verdict, rule = name:match("^(%a+) (.+)$")
    if rule then
      line(out, "requests_total", ('{rule="%s",verdict="%s"}'):format(rule, verdict), counters:get(name) or 0)
    end
  end
end

-- text(counters, connections) -> the metrics. counters: the shared dict; connections: a number, or nil where nginx
-- does not count them.
function _M.text(counters, connections)
  local out, names = { in_force }, counters:get_keys(0)
  table.sort(names)
  verdicts(out, names, counters)
  single(out, "unauthorized_total", "counter", counters:get("unauthorized") or 0,
    "Requests refused because of a missing or invalid token.")
  single(out, "malformed_total", "counter", counters:get("malformed") or 0,
    "Requests refused because they were malformed or ambiguous.")
  family(out, counters, "cached_refusals_total", "state", { "sold_out", "scheduled", "paused", "closed" }, "repeated/",
    "Purchases refused from the cache, by state of the sale.")
  family(out, counters, "bypass_list_fetches_total", "result", { "ok", "error" }, "list/",
    "Bypass lists fetched from a backend.")
  single(out, "bypass_list_entries", "gauge", bypass_list.total(), "Bypass list entries in memory, 4 bytes each.")
  family(out, counters, "fleet_leases_total", "result", { "granted", "refused", "late", "error" }, "fleet/",
    'Leases of rules with scope = "fleet", each a round trip to Redis, by result.')
  times(out, names, counters)
  local live, capacity = rules.live()
  single(out, "buckets", "gauge", live, "Buckets in use, of all rules. An estimate for a large zone.")
  single(out, "bucket_capacity", "gauge", capacity, "Available buckets. If all are in use, new clients are refused.")
  if connections then
    single(out, "connections", "gauge", connections, "Open client connections.")
  end
  return table.concat(out)
end

-- of_parent() -> the metrics of `sluice edge`, or ""
local function of_parent()
  if not parent then
    return ""
  end
  local sock = ngx.socket.tcp()
  sock:settimeouts(TIMEOUT, TIMEOUT, TIMEOUT)
  if not sock:connect("unix:" .. parent) then
    return "" -- nginx has logged it
  end
  local text = sock:receive("*a")
  sock:close()
  return text or ""
end

function _M.run()
  ngx.header["Content-Type"] = "text/plain; version=0.0.4"
  ngx.print(_M.text(ngx.shared.sluice_counters, tonumber(ngx.var.connections_active)), of_parent())
end

return _M
