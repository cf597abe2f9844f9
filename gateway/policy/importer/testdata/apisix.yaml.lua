-- Converted from apisix.yaml. Before use:
--   sluice policy check FILE
--   sluice policy replay LOG --policy FILE
-- Without equivalent, or with another meaning:
--   testdata/apisix.yaml: IPv6 clients are counted by their /64 network (see ipv6_prefix), not by address
--   testdata/apisix.yaml:11: limit-req of search: burst 2.5 is rounded down to 2
--   testdata/apisix.yaml:11: limit-req of search: the rule counts by the verified subject of the token, and requests without a valid token get 401
--   testdata/apisix.yaml:11: limit-req of search: rejected_code is 503, by default; the edge answers 429
--   testdata/apisix.yaml:11: limit-req of search: policy redis counts for all gateways together; each edge counts its own requests
--   testdata/apisix.yaml:11: limit-req of search: the route has further conditions; a rule matches a method and a path only
--   testdata/apisix.yaml:11: limit-req of search counts all URIs and methods together; a policy counts each rule separately
--   testdata/apisix.yaml:11: /find/ is a prefix; a rule's path has a fixed number of segments: the rule covers /find/* and needs a copy for each further depth
--   testdata/apisix.yaml:12: not converted: the plugin limit-count
--   testdata/apisix.yaml:13: not converted: the plugin ip-restriction
--   testdata/apisix.yaml:16: not converted: limit-req of off is disabled
--   testdata/apisix.yaml:18: not converted: limit-req of by agent: the key http_user_agent; a rule counts by client address or by token
--   testdata/apisix.yaml:20: not converted: limit-req of broken: want a rate above 0 and a burst of at least 0
--   testdata/apisix.yaml:23: limit-req of 1: http_x_forwarded_for is a header that a client can set; the rule counts by the address: add your proxies to trusted_proxies

return {
  rules = {
    -- testdata/apisix.yaml:6: limit-req of buy
    { name = "buy", key = "ip", rate = "2r/s", burst = 4, match = { method = "POST", path = "/v1/sales/*/orders" } },
    -- testdata/apisix.yaml:11: limit-req of search
    { name = "search", key = "token", rate = "0.5r/s", burst = 2, delay = true, match = { path = "/search" }, on_error = "allow" },
    -- testdata/apisix.yaml:11: limit-req of search
    { name = "search-2", key = "token", rate = "0.5r/s", burst = 2, delay = true, match = { path = "/find/*" }, on_error = "allow" },
    -- testdata/apisix.yaml:23: limit-req of 1
    { name = "1", key = "ip", rate = "100r/s", burst = 50, delay = true },
  },
}
