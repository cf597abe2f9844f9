return {
  trusted_proxies = {
    "10.0.0.0/8", "::/0" },
  rules = {},
}
-- want 2: trusted_proxies contains ::/0, so that every client can claim any address: list only your proxies
