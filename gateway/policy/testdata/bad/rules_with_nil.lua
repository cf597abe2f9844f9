return {
  rules = {
    { name = "a", key = "ip", rate = "1r/s" },
    nil,
    { name = "b", key = "ip", rate = "1r/s" },
  },
}
-- want 4: unexpected "nil": a value is a string, a number, true, false, a table or the name of a local
