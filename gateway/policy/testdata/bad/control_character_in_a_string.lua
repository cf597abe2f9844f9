return {
  rules = { { name = "a	b", key = "ip", rate = "1r/s" } },
}
-- want 2: a control character: it may be in comments only
