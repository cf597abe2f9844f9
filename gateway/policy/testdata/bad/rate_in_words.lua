return {
  rules = {
    { name = "ip", key = "ip", rate = "10 per second" },
  },
}
-- want 3: rate "10 per second" is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h
