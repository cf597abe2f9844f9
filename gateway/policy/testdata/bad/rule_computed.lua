local stage = "test"
return {
  rules = {
    { name = "a", key = "ip", rate = "1r/s" },
    stage == "test" and { name = "b", key = "ip" },
  },
}
-- want 5: a rule needs a rate such as "20r/s"
