return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40 },
    { name = "other", key = "ip", rate = "1r/h" },
  },
}
-- want 2: with 30000 keys at one time and 2 rules, new clients find no room and are answered as on_error says: the nginx edge's zone has 2 MB and needs 3: lua_shared_dict sluice_buckets 3m in nginx/conf.d/20-lua.conf; the Go gateway has room for 45000 buckets and needs 60000: run more than one, or have fewer rules
-- want 3: rule "ip" never refuses anything: rule "other" looks at all of its requests and is as strict; take it out, or make it stricter
