local cjson = require "cjson"
return { rules = {} }
-- want 1: "require" is not defined: write a string in quotes, and a local before its use
