local policy = { rules = {} }
policy[1] = { name = "ip", key = "ip", rate = "1r/s" }
return policy
-- want 3: a policy has named fields only (trusted_proxies, rules, repeat_refusals), and not [1]
