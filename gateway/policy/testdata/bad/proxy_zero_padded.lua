return {
  trusted_proxies = { "10.0.0.0/08" },
  rules = {},
}
-- want 2: trusted_proxies: "10.0.0.0/08" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
