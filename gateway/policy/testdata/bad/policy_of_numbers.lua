return {
  { name = "ip", key = "ip", rate = "1r/s" },
  rules = {},
}
-- want 1: a policy has named fields only (trusted_proxies, rules, repeat_refusals), and not [1]
