return {
  rules = {
    { name = "ip, key = 'ip', rate = '1r/s' },
  },
}
-- want 3: a string that does not end on its line: is a quote missing?
