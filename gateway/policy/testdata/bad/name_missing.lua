return {
  rules = {
    { key = "ip", rate = "20r/s" },
  },
}
-- want 3: a rule needs a name, which logs and refusals contain
