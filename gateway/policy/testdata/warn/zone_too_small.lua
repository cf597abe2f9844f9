return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },
    { name = "other", key = "ip", rate = "1r/h" },
    { name = "fleet", key = "ip", rate = "1r/h", burst = 1, scope = "fleet" },
  },
}
-- want 2: with 30000 concurrent keys and 2 rules, an edge has no bucket for new clients and on_error applies (ignore an edge that you do not run): the zone of the nginx edge has 2 MB and needs 3: set lua_shared_dict sluice_buckets 3m in nginx/conf.d/20-lua.conf; the Go gateway has 45000 buckets and needs 60000: run several gateways, or use fewer rules
-- want 3: rule "ip" never refuses a request: rule "other" covers all of its requests and is as strict; remove it, or make it stricter
