return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { path = "v1/sales" } },
  },
}
-- want 3: path "v1/sales" must begin with a slash
