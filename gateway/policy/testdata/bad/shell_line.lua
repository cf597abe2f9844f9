#!/usr/bin/env lua
return { rules = { { name = "ip", key = "ip", rate = "1r/s" } } }
-- want 1: unexpected "#": a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }
