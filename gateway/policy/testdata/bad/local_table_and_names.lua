local strict = { { burst = -1 } }
return {
  ["a.b"] = 1,
  rules = strict and {},
}
-- want 3: a policy has no field "a.b": it has trusted_proxies, rules, repeat_refusals
