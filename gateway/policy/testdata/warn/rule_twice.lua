return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },
    { name = "again", key = "ip", rate = "20r/s", burst = 40 },
  },
}
-- want 4: rule "again" is the same as rule "ip": remove one of them
