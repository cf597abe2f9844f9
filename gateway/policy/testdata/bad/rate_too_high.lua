return {
  rules = {
    { name = "ip", key = "ip", rate = "1000001r/s" },
  },
}
-- want 3: rate "1000001r/s" is more than 1000000 requests a second: remove the rule to limit nothing
