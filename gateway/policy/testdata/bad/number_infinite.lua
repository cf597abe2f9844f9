return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 1e400 > 5 and 1 or 2 },
  },
}
-- want 3: "1e400" is not a number of a policy: write it as 40 or 1.5
