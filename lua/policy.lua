-- The edge policy: the one file most people edit. nginx (lua/edge) and the Go gateway read this same file. docs/edge.md
-- says all about it.
--   sluice policy check         names each mistake with its line and what to do, and warns of what is most likely not meant
--   sluice policy replay LOG    says who would have been refused
--   sluice edge reload          takes a change with no restart; buckets whose name and rate are unchanged keep their state
--
-- A rule gives every key (a client address, or the verified subject of a token) a bucket. It refills at `rate`
-- ("20r/s", "90r/m") and takes burst + 1 requests at once: whatever the number of workers, any interval of length L
-- admits at most rate*L + burst + 1. A request must be let through by every rule it matches; one that is refused takes
-- nothing from any bucket.

return {
  -- Networks whose X-Forwarded-For is believed, as CIDRs: { "10.0.0.0/8", "2001:db8::/32" }. The default believes
  -- nobody.
  trusted_proxies = {},

  -- While a whole sale is sold out, scheduled, paused or closed, purchases are refused from memory, before any limit,
  -- for a second at most after a backend said so; who holds an order of the sale gets through. false: every purchase
  -- goes the normal way.
  repeat_refusals = true,

  rules = {
    -- Every request. The key "ip" is the client address; IPv6 clients are counted by their /64.
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },

    -- Purchases. The key "token" is the verified subject: a request that matches and has no valid token is answered
    -- 401.
    { name = "token", key = "token", rate = "2r/s", burst = 4,
      match = { method = "POST", path = "/v1/sales/*/orders" }, -- `*` stands for one segment
      delay = false,      -- true: requests within the burst are slowed to the rate instead of passed at once
      mode = "enforce",   -- or "shadow": counted and logged in a bucket of its own, never enforced
      on_error = "deny",  -- or "allow": when the bucket cannot be read or written
    },
  },
}
