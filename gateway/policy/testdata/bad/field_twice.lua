return {
  rules = {
    { name = "ip", key = "ip", rate = "1r/s",
      match = { path = "/x", method = "GET" },
      burst = 5, ["rate"] = "2r/s" },
  },
}
-- want 5: unexpected "[": write the name of a field without brackets, and a string in quotes
