return {
  rules = {
    { name = "ip", key = "ip", rate = "10/s" },
  },
}
-- want 3: rate "10/s" is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h
