return {
  rules = {
    { name = "concurrency", key = "ip", rate = "20r/s" },
  },
}
-- want 3: name "concurrency" is what the edge calls its own bound on requests at once: choose another
