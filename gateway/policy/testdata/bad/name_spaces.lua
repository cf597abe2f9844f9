return {
  rules = {
    { name = "per ip", key = "ip", rate = "20r/s" },
  },
}
-- want 3: name "per ip" must be 1 to 32 letters, digits, "-" or "_", the first a letter or a digit
