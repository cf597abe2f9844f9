local function limits(name, ...)
  ; -- nothing
  return { name = name, key = "ip", rate = "1r/s" }
end
return { rules = { limits("a") } }
-- want 2: ";" with no statement before it: remove it
