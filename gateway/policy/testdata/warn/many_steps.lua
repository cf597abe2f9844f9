local n = 0
for i = 1, 9000 do n = n + 1 end
return { rules = {} }
-- want  takes 18010 of the 20000 steps that it may take, and the nginx edge counts a few more: compute less
