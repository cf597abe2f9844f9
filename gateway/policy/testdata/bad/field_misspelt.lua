return {
  rules = {
    {
      name = "ip",
      key = "ip",
      rate = "20r/s",
      brust = 40,
    },
  },
}
-- want 7: a rule has no field "brust": did you mean "burst"?
