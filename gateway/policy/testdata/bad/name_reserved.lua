return {
  rules = {
    { name = "concurrency", key = "ip", rate = "20r/s" },
  },
}
-- want 3: name "concurrency" is reserved for the limit of concurrent requests: choose another
