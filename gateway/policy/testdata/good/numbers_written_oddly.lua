return { rules = { { name = "ip", key = "ip", rate = "1.5r/m", burst = 0x10 }, { name = "b", key = "ip", rate = "0.000001r/h", burst = 1e0 } } }
