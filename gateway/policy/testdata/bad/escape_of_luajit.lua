return {
  rules = {
    { name = "\u{41}b", key = "ip", rate = "1r/s" },
  },
}
-- want 3: "\u" in a string is not read by every edge: write the character itself
