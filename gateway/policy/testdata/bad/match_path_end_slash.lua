return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { path = "/v1/" } },
  },
}
-- want 3: path "/v1/" has an empty segment or a slash at its end
