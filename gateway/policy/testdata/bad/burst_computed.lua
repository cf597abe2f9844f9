return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 1/0 },
  },
}
-- want 3: unexpected "/": a policy computes nothing, write the value itself
