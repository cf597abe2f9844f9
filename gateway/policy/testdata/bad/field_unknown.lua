return {
  rules = {},
  limits = {},
}
-- want 3: a policy has no field "limits": it has trusted_proxies, rules, repeat_refusals
