return {
  rules = {
    { name = "a", key = "ip", rate = "1r/s", burst = 1000000000000000 },
  },
}
-- want 3: "1000000000000000" is not a number of a policy: write it as 40 or 1.5
