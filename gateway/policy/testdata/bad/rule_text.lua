return {
  rules = {
    "ip",
  },
}
-- want 3: a rule is a table, and not the string "ip"
