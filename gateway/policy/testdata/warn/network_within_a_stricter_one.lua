return {
  rules = {
    { name = "site", key = "ip", rate = "20r/s", burst = 40, ipv6_prefix = 48 },
    { name = "network", key = "ip", rate = "20r/s", burst = 40 },
  },
}
-- want 4: rule "network" never refuses a request: rule "site" covers all of its requests and is as strict; remove it, or make it stricter
