return {
  rules = {
    { name = "a\qb", key = "ip", rate = "1r/s" },
  },
}
-- want 3: "\q" in a string is not read by every edge: write the character itself
