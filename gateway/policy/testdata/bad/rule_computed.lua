local stage = "test"
return {
  rules = {
    { name = "a", key = "ip", rate = "1r/s" },
    stage and { name = "b", key = "ip" },
  },
}
-- want 5: unexpected "and": a policy computes nothing, write the value itself
