local bursts = { 1, [1] = 2 }
return {
  rules = { { name = "ip", key = "ip", rate = "1r/s", burst = bursts[1] } },
}
-- want 1: a key in brackets that is not a quoted name: write the values of a list in their order
