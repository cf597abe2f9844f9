return {
  rules = {
    { name = "ip", key = "ip", rate = "0r/s" },
  },
}
-- want 3: rate "0r/s" must be more than zero: "1r/h" admits almost nothing
