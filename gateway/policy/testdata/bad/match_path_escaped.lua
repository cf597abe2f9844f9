return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { path = "/v1%2Fsales" } },
  },
}
-- want 3: path "/v1%2Fsales" is matched against decoded paths without a query, and may hold plain ASCII only
