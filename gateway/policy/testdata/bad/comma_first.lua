return {
  rules = {
    , { name = "a", key = "ip", rate = "1r/s" },
  },
}
-- want 3: "," with no value before it: remove it
