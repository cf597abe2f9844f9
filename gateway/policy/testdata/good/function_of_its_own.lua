local function per(n, unit) return n .. "r/" .. unit end
return { rules = { { name = "ip", key = "ip", rate = per(20, "s") } } }
