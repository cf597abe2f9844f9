return {
  rules = {
    { name = "a", key = "ip", rate = "zzz" },
  },
  repeat_refusals = (function()
    return true
  end)(),
}
-- want 5: unexpected "(": a value is a string, a number, true, false, a table or the name of a local
