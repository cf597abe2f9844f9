return {
  trusted_proxies = { "fe80::1%eth0" },
  rules = {},
}
-- want 2: trusted_proxies: "fe80::1%eth0" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
