return {
  rules = {
    { name = "ip", rate = "20r/s" },
  },
}
-- want 3: a rule needs a key: "ip" or "token"
