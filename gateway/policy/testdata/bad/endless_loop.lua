local n = 0
while true do
  n = n + 1
end
return { rules = {} }
-- want 3: runs for more than 20000 steps: is there an endless loop?
