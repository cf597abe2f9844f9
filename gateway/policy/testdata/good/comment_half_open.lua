--[= rules
--[==
--[ [
return { rules = {} } --[=[ the end ]] ]=]
