local field = "rate"
return {
  rules = { { name = "ip", key = "ip", rate = "1r/s",
    [field] = "2r/s" } },
}
-- want 4: unexpected "[": write the name of a field without brackets, and a string in quotes
