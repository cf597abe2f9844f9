return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s",
      ipv6_prefix = false },
  },
}
-- want 4: ipv6_prefix must be 64, 56 or 48, and is false
