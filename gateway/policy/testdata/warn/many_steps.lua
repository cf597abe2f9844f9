local n = 0
for i = 1, 9000 do n = n + 1 end
return { rules = {} }
-- want  executes 18010 of at most 20000 instructions, and a few more on the nginx edge: simplify the computation
