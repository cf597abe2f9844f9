return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40,
      scope = true },
  },
}
-- want 4: scope must be "edge" or "fleet", and is true
