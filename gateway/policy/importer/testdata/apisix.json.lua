-- Converted from apisix.json. Before use:
--   sluice policy check FILE
--   sluice policy replay LOG --policy FILE
-- Without equivalent, or with another meaning:
--   testdata/apisix.json: IPv6 clients are counted by their /64 network (see ipv6_prefix), not by address

return {
  rules = {
    -- testdata/apisix.json:1: limit-req of limit-req
    { name = "limit-req", key = "ip", rate = "5r/s", burst = 1 },
  },
}
