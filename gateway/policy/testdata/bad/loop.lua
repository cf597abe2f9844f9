local n = 0
while true do
  n = n + 1
end
return { rules = {} }
-- want 2: unexpected "while": a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }
