return {
  rules = {
    { name = "ip", key = "ip", rate = "0.000001r/h", burst = 10 },
  },
}
-- want 3: burst 10 at this rate takes 1255 years to refill: lower the burst or raise the rate
