local a = { b = 1, b2 = { burst = -1 } }
return {
  rules = {},
  a = a,
  b = 2,
}
-- want 4: a policy has no field "a": it has trusted_proxies, rules, repeat_refusals
-- want 5: a policy has no field "b": it has trusted_proxies, rules, repeat_refusals
