return {
  rules = {
    { name = "network", key = "ip", rate = "1r/s", ipv6_prefix = 64 },
    { name = "home", key = "ip", rate = "2r/s", burst = 1, ipv6_prefix = 56 },
    { name = "site", key = "ip", rate = "3r/s", burst = 2, ipv6_prefix = 48.0 },
  },
}
