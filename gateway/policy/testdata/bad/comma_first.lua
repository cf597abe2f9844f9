return {
  rules = {
    , { name = "a", key = "ip", rate = "1r/s" },
  },
}
-- want 3: unexpected ",": a value is a string, a number, true, false, a table or the name of a local
