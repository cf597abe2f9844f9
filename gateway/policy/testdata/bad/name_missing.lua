return {
  rules = {
    { key = "ip", rate = "20r/s" },
  },
}
-- want 3: a rule needs a name: it is what logs and refusals call it
