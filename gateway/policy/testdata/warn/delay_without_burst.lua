return {
  rules = {
    { name = "slow", key = "ip", rate = "1r/s", delay = true },
  },
}
-- want 3: rule "slow" has delay = true without a burst, which has no effect: add a burst or remove delay
