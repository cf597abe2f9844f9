return {
  rules = {
    { name = "\300", key = "ip", rate = "1r/s" },
  },
}
-- want 3: "\300" in a string is not read by every edge: write the character itself
