return {
  rules = {
    {
      name = "ip", key = "ip", rate = "1r/s",
      infinity = 1,
    },
  },
  inf = 1,
  nan = 1,
}
-- want 5: a rule has no field "infinity": it has name, key, rate, burst, match, delay, mode, on_error, ipv6_prefix, scope
-- want 8: a policy has no field "inf": it has trusted_proxies, rules, repeat_refusals
-- want 9: a policy has no field "nan": it has trusted_proxies, rules, repeat_refusals
