return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s",
      ipv6_prefix = "64" },
  },
}
-- want 4: ipv6_prefix must be 64, 56 or 48, and is the string "64"
