local s = "x"
for i = 1, 64 do
  s = s .. s
end
return { rules = {} }
-- want 2: makes a string of more than 4096 bytes: no field needs that
