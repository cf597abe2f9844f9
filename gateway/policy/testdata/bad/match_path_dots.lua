return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { path = "/v1/../x" } },
  },
}
-- want 3: path "/v1/../x" has a segment "." or ".."
