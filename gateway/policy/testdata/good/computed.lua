local rules = {}
for i = 1, 10 do
  rules[#rules + 1] = { name = "r" .. i, key = "ip", rate = i .. "r/s", burst = 2 * i, match = { path = "/v1/" .. i } }
end
return { rules = rules }
