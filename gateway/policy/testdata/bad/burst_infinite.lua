return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 1/0 },
  },
}
-- want 3: burst must be a whole number from 0 to 1000000, and is inf
