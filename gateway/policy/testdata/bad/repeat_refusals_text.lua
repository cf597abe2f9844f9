return {
  repeat_refusals = "no",
  rules = {},
}
-- want 2: repeat_refusals must be true or false, and is the string "no"
