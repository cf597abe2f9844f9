return {
  rules = {
    { name = "a", key = "ip", rate = "1r/s" },
    nil,
    { name = "b", key = "ip", rate = "1r/s" },
  },
}
-- want 2: rules must be a list without names or gaps: { {...}, {...} }
