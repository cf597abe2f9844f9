-- Accelerator: split() ends a compiled trace, and a new one begins after it. Stands in for sluice/split.lua.
--
-- LuaJIT compiles a request as one straight line through all functions that it calls. A trace holds at most 255 values
-- outside of registers, which the whole path of a purchase exceeds ("too many spill slots"): its parts that do not fit
-- are then interpreted for as long as the worker lives. LuaJIT does not compile calls of table.maxn, and continues with
-- another trace after it.

local maxn = table.maxn

local NOTHING = {}

return function()
  maxn(NOTHING)
end
