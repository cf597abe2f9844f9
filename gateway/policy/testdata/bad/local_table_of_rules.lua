local strict = {
  name = "strict", key = "ip",
  rate = "20",
}
local rules = {
  { name = "ip", key = "ip", rate = "1r/s" },
  strict,
}
return { rules = rules }
-- want 3: rate "20" is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h
