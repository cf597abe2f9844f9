return {
  trusted_proxies = { "::ffff:10.0.0.0/95" },
  rules = {},
}
-- want 2: trusted_proxies: "::ffff:10.0.0.0/95" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
