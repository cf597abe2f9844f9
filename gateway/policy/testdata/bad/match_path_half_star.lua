return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { path = "/v1/sa*" } },
  },
}
-- want 3: path "/v1/sa*" may have "*" only as a whole segment
