return {
  rules = { { name = "ip", key = "ip", rate = "1r/s",
    ["ra" .. "te"] = "2r/s" } },
}
-- want 3: a key in brackets that is not a quoted name: write the values of a list in their order
