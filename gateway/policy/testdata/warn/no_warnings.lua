return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },
    { name = "tight", key = "ip", rate = "2r/s", burst = 50 },
    { name = "stricter", key = "ip", rate = "1r/s", burst = 40, match = { path = "/x" } },
    { name = "slowed", key = "ip", rate = "20r/s", burst = 40, delay = true, match = { path = "/y/*" } },
    { name = "site", key = "ip", rate = "100r/s", burst = 200, ipv6_prefix = 48 },
    { name = "token", key = "token", rate = "20r/s", burst = 40 },
    { name = "trial", key = "ip", rate = "10r/s", burst = 10, mode = "shadow" },
  },
}
