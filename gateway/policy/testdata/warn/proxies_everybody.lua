return {
  trusted_proxies = {
    "10.0.0.0/8", "::/0" },
  rules = {},
}
-- want 2: trusted_proxies holds ::/0: every client can claim any address; name your proxies only
