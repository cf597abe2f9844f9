-- Converted from ingress.yaml. Before use:
--   sluice policy check FILE
--   sluice policy replay LOG --policy FILE
-- Without equivalent, or with another meaning:
--   testdata/ingress.yaml: limit-req-status-code of the ConfigMap is 503, by default; the edge answers 429
--   testdata/ingress.yaml: IPv6 clients are counted by their /64 network (see ipv6_prefix), not by address
--   testdata/ingress.yaml:4: Ingress shop is limited to hosts; a rule applies to every host
--   testdata/ingress.yaml:4: Ingress shop counts all of its paths together; a policy counts each rule separately
--   testdata/ingress.yaml:4: /api/ is a prefix; a rule's path has a fixed number of segments: the rule covers /api/* and needs a copy for each further depth
--   testdata/ingress.yaml:12: limit-whitelist 10.0.0.0/8: a policy has no exceptions, so these clients are limited too
--   testdata/ingress.yaml:13: not converted: limit-connections 20: --per-client of the edge limits the concurrent requests of a client
--   testdata/ingress.yaml:14: not converted: denylist-source-range 198.51.100.0/24: a policy blocks no clients
--   testdata/ingress.yaml:28: not converted: limit-rpm "many": want a number of requests

return {
  rules = {
    -- testdata/ingress.yaml:4: Ingress shop, limit of shop-rps
    { name = "shop-rps", key = "ip", rate = "10r/s", burst = 30, match = { path = "/checkout" } },
    -- testdata/ingress.yaml:4: Ingress shop, limit of shop-rps
    { name = "shop-rps-2", key = "ip", rate = "10r/s", burst = 30, match = { path = "/api/*" } },
    -- testdata/ingress.yaml:4: Ingress shop, limit of shop-rpm
    { name = "shop-rpm", key = "ip", rate = "300r/m", burst = 900, match = { path = "/checkout" } },
    -- testdata/ingress.yaml:4: Ingress shop, limit of shop-rpm
    { name = "shop-rpm-2", key = "ip", rate = "300r/m", burst = 900, match = { path = "/api/*" } },
    -- testdata/ingress.yaml:23: Ingress a-name-that-is-longer-than-thirty-two-letters, limit of a-name-that-is-longer-than-thirty-two-letters-rps
    { name = "a-name-that-is-longer-than-thirt", key = "ip", rate = "2r/s", burst = 10 },
  },
}
