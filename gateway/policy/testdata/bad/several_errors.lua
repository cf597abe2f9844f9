return {
  trusted_proxy = {},
  rules = {
    { name = "ip", key = "ip", rate = "0r/s" },
    { name = "token", key = "user", rate = "2r/s", burst = -4 },
  },
}
-- want 2: a policy has no field "trusted_proxy": did you mean "trusted_proxies"?
-- want 4: rate "0r/s" must be more than zero: "1r/h" admits almost nothing
-- want 5: key must be "ip" or "token", and is "user"
-- want 5: burst must be a whole number from 0 to 1000000, and is -4
