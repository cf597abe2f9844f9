return {
  [1] = { name = "ip", key = "ip", rate = "1r/s" },
  rules = {},
}
-- want 1: a policy has named fields only (trusted_proxies, rules), and not [1]
