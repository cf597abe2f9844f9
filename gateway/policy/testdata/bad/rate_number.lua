return {
  rules = {
    { name = "ip", key = "ip", rate = 20 },
  },
}
-- want 3: rate must be a string such as "20r/s", and is the number 20
