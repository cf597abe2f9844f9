return { rules = { { name = "abcdefghijklmnopqrstuvwxyz012345", key = "token", rate = "1000000r/s", burst = 1000000, match = { method = "ABCDEFGHIJKLMNOPQRST", path = "/" } } } }
