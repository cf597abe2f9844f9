return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", on_error = "open" },
  },
}
-- want 3: on_error must be "deny" or "allow", and is "open"
