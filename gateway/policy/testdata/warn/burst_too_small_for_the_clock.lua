return {
  rules = {
    { name = "fast", key = "ip", rate = "20000r/s" },
    { name = "enough", key = "ip", rate = "20000r/s", burst = 19, match = { path = "/x" } },
  },
}
-- want 3: rule "fast" has burst 0 and lets 20 through a millisecond on average: requests arrive in bunches of that length, and even those that keep to the rate are refused; use a burst of 19 or more
-- want 4: rule "enough" never refuses anything: rule "fast" looks at all of its requests and is as strict; take it out, or make it stricter
