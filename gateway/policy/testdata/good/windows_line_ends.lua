return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s" },
  },
}
