return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s", burst = 40LL },
  },
}
-- want 3: "40LL" is not a number of a policy: write it as 40 or 1.5
