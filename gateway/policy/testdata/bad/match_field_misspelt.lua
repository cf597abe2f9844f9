return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { metod = "POST" } },
  },
}
-- want 3: match has no field "metod": did you mean "method"?
