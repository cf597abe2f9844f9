return {
  trusted_proxies = {
    "10.0.0.0/8",
    "10.0.0.0/33",
    "load-balancer",
    10,
  },
  rules = {},
}
-- want 4: trusted_proxies: "10.0.0.0/33" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
-- want 5: trusted_proxies: "load-balancer" is not a network such as "10.0.0.0/8" or "2001:db8::/32"
-- want 6: trusted_proxies holds strings such as "10.0.0.0/8", and not the number 10
