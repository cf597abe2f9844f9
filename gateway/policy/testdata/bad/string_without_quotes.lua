return {
  rules = {
    { name = "ip", key = ip, rate = "1r/s" },
  },
}
-- want 3: "ip" is not defined: write a string in quotes, and a local before its use
