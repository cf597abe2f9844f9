return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s", burst = 1e3 },
  },
}
-- want 3: "1e3" is not a number of a policy: write it as 40 or 1.5
