local cjson = require "cjson"
return { rules = {} }
-- want 1: attempt to call a non-function object: a policy has no libraries, and can call only what it defines itself
