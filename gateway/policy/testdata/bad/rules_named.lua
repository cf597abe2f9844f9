return {
  rules = { ip = { rate = "1r/s" } },
}
-- want 2: rules must be a list without names: { {...}, {...} }
