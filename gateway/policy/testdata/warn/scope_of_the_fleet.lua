return {
  rules = {
    { name = "edge", key = "ip", rate = "10r/s", burst = 10, match = { method = "GET" } },
    { name = "fleet", key = "ip", rate = "20r/s", burst = 40, match = { method = "GET" }, scope = "fleet" },
    { name = "fallback", key = "ip", rate = "30r/s", burst = 60, match = { method = "GET" } },
    { name = "orders", key = "ip", rate = "1r/s", burst = 2, match = { method = "POST" }, scope = "fleet" },
    { name = "buyers", key = "token", rate = "1r/s", burst = 2, match = { method = "POST" } },
  },
}
-- want 5: rule "fallback" never refuses a request: rule "edge" covers all of its requests and is as strict; remove it, or make it stricter
-- want 7: rule "buyers" has no rule with key = "ip" before it, so that each forged token costs a signature: add one that covers the same requests
