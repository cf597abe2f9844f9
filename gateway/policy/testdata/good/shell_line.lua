#!/usr/bin/env lua
return { rules = { { name = "ip", key = "ip", rate = "1r/s" } } }
