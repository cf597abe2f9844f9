local function many(...)
  local n = -...
  while true do
    n = -(... or 0) + (function(...) return ... end)(...)
  end
end
return many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
-- want 4: runs for more than 20000 steps: is there an endless loop?
