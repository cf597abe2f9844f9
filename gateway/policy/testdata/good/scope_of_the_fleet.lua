return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40, scope = "edge" },
    { name = "buy", key = "token", rate = "10r/s", burst = 20, scope = "fleet" },
    { name = "slow", key = "ip", rate = "1r/h", burst = 1, scope = "fleet", mode = "shadow", on_error = "allow" },
    { name = "site", key = "ip", rate = "20000r/s", burst = 200, scope = "fleet", ipv6_prefix = 48 },
  },
}
