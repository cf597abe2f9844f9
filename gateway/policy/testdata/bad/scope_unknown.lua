return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40,
      scope = "fleets" },
  },
}
-- want 4: scope must be "edge" or "fleet", and is "fleets": did you mean "fleet"?
