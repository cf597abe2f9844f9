return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },
    { name = "trial", key = "ip", rate = "30r/s", burst = 60, mode = "shadow" },
  },
}
-- want 4: rule "trial" never refuses a request: rule "ip" covers all of its requests and is as strict; remove it, or make it stricter
