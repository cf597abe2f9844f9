return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 0010 },
  },
}
-- want 3: "0010" is not a number of a policy: write it as 40 or 1.5
