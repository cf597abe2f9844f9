return {
  rules = {
    { name = "ip", key = "Ip", rate = "1r/s" },
  },
}
-- want 3: key must be "ip" or "token", and is "Ip": did you mean "ip"?
