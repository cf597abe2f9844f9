-- split() does nothing. accel/split.lua stands in for it.
return function() end
