-- The edge policy: the one file that most deployments edit. nginx (lua/edge) and the Go gateway read it; docs/edge.md
-- describes every field.
--   sluice policy check         reports each error with its line and remedy, and warns of what is probably not intended
--   sluice policy replay LOG    shows which logged requests a policy would have refused
--   sluice edge reload          applies a change without a restart; a rule keeps its buckets unless its name, key,
--   rate, mode or ipv6_prefix changes
--
-- A rule gives every key (a client address, or the verified subject of a token) a bucket. The bucket refills at `rate`
-- ("20r/s", "90r/m") and holds burst + 1 requests. With any number of workers, any interval of length L admits at most
-- rate*L + burst + 1. A request is admitted when every rule that matches it admits it; a refused request takes nothing
-- from any bucket.

return {
  -- Trusted networks, as CIDRs, for example { "10.0.0.0/8", "2001:db8::/32" }: the edge uses X-Forwarded-For from them.
  trusted_proxies = {},

  -- true: purchases of a sale that is sold out, scheduled, paused or closed are refused from memory, before any limit,
  -- for at most one second after a backend has refused one; buyers who may hold an order reach a backend.
  -- false: every purchase passes the limits and reaches a backend.
  repeat_refusals = true,

  rules = {
    -- Every request. The key "ip" is the client address; IPv6 clients are counted by their /64 (ipv6_prefix).
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },

    -- Purchases. The key "token" is the verified subject; a matching request without a valid token gets a 401.
    { name = "token", key = "token", rate = "2r/s", burst = 4,
      match = { method = "POST", path = "/v1/sales/*/orders" }, -- `*` is one segment
      delay = false,      -- true: requests within the burst are delayed to the rate
      mode = "enforce",   -- or "shadow": counted and logged in its own buckets, never enforced
      on_error = "deny",  -- or "allow": when a bucket cannot be read or written
    },
  },
}
