return {
  rules = {
    { name = "fast", key = "ip", rate = "20000r/s" },
    { name = "enough", key = "ip", rate = "20000r/s", burst = 19, match = { path = "/x" } },
  },
}
-- want 3: rule "fast" has burst 0 and admits 20 requests a millisecond on average: requests arrive in bunches of that duration, and even those within the rate are refused; use a burst of 19 or more
-- want 4: rule "enough" never refuses a request: rule "fast" covers all of its requests and is as strict; remove it, or make it stricter
