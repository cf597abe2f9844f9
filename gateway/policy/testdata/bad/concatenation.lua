local prefix = "/v1/sales/"
return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s",
      match = { path = prefix .. "shoe" } },
  },
}
-- want 5: unexpected ".": a policy computes nothing, write the value itself
