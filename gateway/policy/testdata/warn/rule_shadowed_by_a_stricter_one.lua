return {
  rules = {
    { name = "orders", key = "ip", rate = "20r/s", burst = 5, match = { method = "POST", path = "/V1/sales/7/orders" } },
    { name = "all", key = "ip", rate = "1200r/m", burst = 5, match = { path = "/v1/sales/*/orders" } },
  },
}
-- want 3: rule "orders" never refuses a request: rule "all" covers all of its requests and is as strict; remove it, or make it stricter
