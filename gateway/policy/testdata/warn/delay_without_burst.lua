return {
  rules = {
    { name = "slow", key = "ip", rate = "1r/s", delay = true },
  },
}
-- want 3: rule "slow" has delay = true and no burst: there is nothing to delay; add a burst or leave delay out
