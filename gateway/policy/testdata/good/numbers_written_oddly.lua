return { rules = {
  { name = "ip", key = "ip", rate = "1.5r/m", burst = 16.0 },
  { name = "b", key = "ip", rate = "0.000001r/h", burst = -0 },
} }
