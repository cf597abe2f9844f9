local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1 local a = 1
local burst = 40
return { rules = {} }
-- want 21: more than 200 locals: write values where they are used
