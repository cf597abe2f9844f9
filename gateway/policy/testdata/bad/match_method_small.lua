return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", match = { method = "post" } },
  },
}
-- want 3: method "post" is not an HTTP method in capitals such as "POST"
