local field = "rate"
return {
  rules = { { name = "ip", key = "ip", rate = "1r/s",
    [field] = "2r/s" } },
}
-- want 4: a key in brackets that is not a quoted name: write the values of a list in their order
