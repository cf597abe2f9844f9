return {
  rules = {
    { name = "ip", key = "ip" },
  },
}
-- want 3: a rule needs a rate such as "20r/s"
