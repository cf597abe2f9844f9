return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s", burst = -0, scope = "fleet" },
  },
}
-- want 3: a rule with scope = "fleet" needs a burst of at least 1 at this rate, and has 0
