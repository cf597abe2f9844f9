return { rules = { { name = "\097\98c", key = "ip", rate = "1r/s" } } }
