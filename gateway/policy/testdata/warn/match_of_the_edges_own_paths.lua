return {
  rules = {
    { name = "health", key = "ip", rate = "1r/s", match = { path = "/healthz" } },
    { name = "admin", key = "ip", rate = "1r/s", match = { path = "/Admin/v1/*" } },
    { name = "metrics", key = "ip", rate = "1r/s", match = { path = "/metrics" } },
    { name = "holders", key = "ip", rate = "1r/s", match = { path = "/.sluice/sales/*/holders" } },
    { name = "fine", key = "ip", rate = "1r/s", match = { path = "/metricsx" } },
  },
}
-- want 3: rule "health" can never match: the edge answers /healthz by itself; leave the rule out
-- want 4: rule "admin" can never match: the edge answers /admin... by itself; leave the rule out
-- want 5: rule "metrics" can never match: the edge answers /metrics by itself; leave the rule out
-- want 6: rule "holders" can never match: the edge answers /.sluice/... by itself; leave the rule out
