return {
  rules = {
    { name = "a", key = "ip", rate = "9999999999r/h" },
    { name = "b", key = "ip", rate = "0.1234567r/s" },
    { name = "c", key = "ip", rate = "1234567890.r/s" },
  },
}
-- want 3: rate "9999999999r/h" has too many digits: write at most 9 before the point and 6 after it
-- want 4: rate "0.1234567r/s" has too many digits: write at most 9 before the point and 6 after it
-- want 5: rate "1234567890.r/s" is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h
