return {
  rules = {
    { name = "ip" key = "ip" },
  },
}
-- want 3: syntax error near "key": is a comma or a bracket missing before it?
