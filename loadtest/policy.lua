-- The edge policy for load tests. It differs from lua/policy.lua in one field: this machine is a trusted proxy, so
-- that every virtual buyer of spike.js and soak.js can have an address of its own (X-Forwarded-For). For test systems
-- only: with this file, any process on this machine can claim any client address.

return {
  trusted_proxies = { "127.0.0.0/8", "::1" },

  repeat_refusals = true,

  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },

    { name = "token", key = "token", rate = "2r/s", burst = 4,
      match = { method = "POST", path = "/v1/sales/*/orders" },
      delay = false,
      mode = "enforce",
      on_error = "deny",
    },
  },
}
