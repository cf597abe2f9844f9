return {
  rules = {
    { name = "ip" key = "ip" },
  },
}
-- want 3: unexpected "key": is a comma or a bracket missing before it?
