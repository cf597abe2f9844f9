local bursts = { 1, [1] = 2 }
return {
  rules = { { name = "ip", key = "ip", rate = "1r/s", burst = bursts[1] } },
}
-- want 1: unexpected "[": write the name of a field without brackets, and a string in quotes
