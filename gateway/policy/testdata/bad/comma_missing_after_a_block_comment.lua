--[[
{ name = "old", key = "ip", rate = "10r/s" }
]]
return {
  rules = {
    { name = "ip" key = "ip", rate = "20r/s" },
  },
}
-- want 6: unexpected "key": is a comma or a bracket missing before it?
