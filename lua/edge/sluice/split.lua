-- split() separates the parts of a long path that LuaJIT compiles, and has no other effect. Here it does nothing;
-- accel/split.lua stands in for it.
return function() end
