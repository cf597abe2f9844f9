return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = "40" },
  },
}
-- want 3: burst must be a whole number, and is the string "40"
