return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", delay = "yes" },
  },
}
-- want 3: delay must be true or false, and is the string "yes"
