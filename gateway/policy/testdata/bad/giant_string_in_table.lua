local t = { s = "x" }
for i = 1, 64 do
  t.s = t.s .. t.s
end
return { rules = {} }
-- want 3: makes a string of more than 4096 bytes: no field needs that
