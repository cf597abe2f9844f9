return {
  rules = {
    { name = "\u{41}b", key = "ip", rate = "1r/s" },
  },
}
-- want 3: a backslash in a string: write the character itself
