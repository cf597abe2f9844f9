return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s", burst = 0x1p4 },
  },
}
-- want 3: "0x1p4" is not a number that every edge reads: write it as 40 or 1.5
