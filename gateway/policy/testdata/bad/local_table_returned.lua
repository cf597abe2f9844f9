local policy = {
  rules = {},
  trusted_proxies = { "10.0.0.0/99" },
}
return policy
-- want 3: trusted_proxies: "10.0.0.0/99" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
