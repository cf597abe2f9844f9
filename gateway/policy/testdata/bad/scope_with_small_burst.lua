return {
  rules = {
    { name = "ip", key = "ip", rate = "1000r/s", scope = "fleet",
      burst = 9 },
  },
}
-- want 4: a rule with scope = "fleet" needs a burst of at least 10 at this rate, and has 9
