return {
  rules = {
    { name = "ip", key = "tokne", rate = "20r/s" },
  },
}
-- want 3: key must be "ip" or "token", and is "tokne": did you mean "token"?
