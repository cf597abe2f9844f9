return {
  rules = {
    { name = "a", key = "ip", rate = "zzz" },
  },
  repeat_refusals = (function()
    return true
  end)(),
}
-- want 3: rate "zzz" is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h
