return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40, scope = "fleet",
      delay = true },
  },
}
-- want 4: delay is for rules with scope = "edge": remove it
