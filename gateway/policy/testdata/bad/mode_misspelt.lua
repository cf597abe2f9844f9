return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s", mode = "shadwo" },
  },
}
-- want 3: mode must be "enforce" or "shadow", and is "shadwo": did you mean "shadow"?
