return {
  trusted_proxies = { "10.0.0.1\000x" },
  rules = {},
}
-- want 2: trusted_proxies: "10.0.0.1?x" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
