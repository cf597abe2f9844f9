return {
  rules = {},
  end = true,
}
-- want 3: unexpected "end": a value is a string, a number, true, false, a table or the name of a local
