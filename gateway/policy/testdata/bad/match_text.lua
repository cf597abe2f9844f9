return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = "/v1" },
  },
}
-- want 3: match must be a table such as { method = "POST", path = "/v1/sales/*/orders" }, and is the string "/v1"
