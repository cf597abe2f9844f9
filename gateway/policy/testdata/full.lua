-- Every field, written in every way.
local orders = { method = "POST", path = "/v1/sales/*/orders" }
return {
  trusted_proxies = { "10.0.0.0/8", "192.0.2.1", "2001:db8::1/32", "::ffff:198.51.100.0/120" },
  repeat_refusals = false,
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },
    { name = "token", key = "token", rate = "90r/m", burst = 4, match = orders, delay = true, mode = "shadow", on_error = "allow" },
    { name = "slow", key = "ip", rate = "0.5r/h", mode = "enforce", on_error = "deny", delay = false, ipv6_prefix = 48 },
  },
}
