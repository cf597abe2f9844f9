return {
  rules = {
    { name = "health", key = "ip", rate = "1r/s", match = { path = "/healthz" } },
    { name = "admin", key = "ip", rate = "1r/s", match = { path = "/Admin/v1/*" } },
    { name = "metrics", key = "ip", rate = "1r/s", match = { path = "/metrics" } },
    { name = "holders", key = "ip", rate = "1r/s", match = { path = "/.sluice/sales/*/holders" } },
    { name = "fine", key = "ip", rate = "1r/s", match = { path = "/metricsx" } },
  },
}
-- want 3: rule "health" can never match, because /healthz is not forwarded to backends: remove the rule
-- want 4: rule "admin" can never match, because /Admin/v1/* is not forwarded to backends: remove the rule
-- want 5: rule "metrics" can never match, because /metrics is not forwarded to backends: remove the rule
-- want 6: rule "holders" can never match, because /.sluice/sales/*/holders is not forwarded to backends: remove the rule
