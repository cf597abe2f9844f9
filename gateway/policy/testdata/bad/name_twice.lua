return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s" },
    {
      key = "token",
      name = "ip",
      rate = "2r/s",
    },
  },
}
-- want 6: rule 2 is named "ip" like rule 1: names must differ
