return {
  rules = {
    { name = "token", key = "token", rate = "1r/s",
      ipv6_prefix = 64 },
  },
}
-- want 4: ipv6_prefix is for rules with key = "ip": remove it
