return {
  rules = {
    { name = "pages", key = "ip", rate = "5r/s", match = { method = "GET" } },
    { name = "orders", key = "token", rate = "1r/s", match = { path = "/v1/sales/*/orders" } },
  },
}
-- want 4: rule "orders" has no rule with key = "ip" before it, so that each forged token costs a signature: add one that covers the same requests
