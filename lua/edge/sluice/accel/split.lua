-- Accelerator: split() ends a compiled trace, and a new one begins after it. Stands in for sluice/split.lua.
--
-- LuaJIT compiles a request as one straight line through all functions that it calls. A trace has 255 slots of four
-- bytes for values outside of registers. The whole path of a purchase needs more ("too many spill slots"), so parts of
-- it would be interpreted for the lifetime of the worker. LuaJIT does not compile a call of table.maxn, and continues
-- with another trace after it.

local maxn = table.maxn

local NOTHING = {}

return function()
  maxn(NOTHING)
end
