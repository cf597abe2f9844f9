local cjson = require "cjson"
return { rules = {} }
-- want 1: attempt to call a non-function object (a policy has no libraries: it can call nothing that it does not define)
