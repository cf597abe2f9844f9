-- Converted from nginx.conf. Before use:
--   sluice policy check FILE
--   sluice policy replay LOG --policy FILE
-- Without equivalent, or with another meaning:
--   testdata/nginx.conf: IPv6 clients are counted by their /64 network (see ipv6_prefix), not by address
--   testdata/nginx.conf:6: $limited is set by the map on line 4: a policy has no exceptions, so clients that it exempts are limited too
--   testdata/nginx.conf:7: limit_req_status 503: the edge answers 429
--   testdata/nginx.conf:10: not converted: set_real_ip_from unix:: want an address or a network
--   testdata/nginx.conf:11: real_ip_header X-Real-IP: the edge reads X-Forwarded-For, or the PROXY protocol
--   testdata/nginx.conf:18: not converted: limit_conn addresses 10: --per-client of the edge limits the concurrent requests of a client
--   testdata/nginx.conf:21: limit_req zone=login in location = /login replaces the limit of line 17 in nginx; every rule that matches applies here
--   testdata/nginx.conf:23: /api/ is a prefix; a rule's path has a fixed number of segments: the rule covers /api/* and needs a copy for each further depth
--   testdata/nginx.conf:23: location /api/: the rule also counts requests of other locations that it matches
--   testdata/nginx.conf:24: limit_req zone=all burst=5 delay=3 in location /api/: the rule delays every request above the rate, not only those after the first 3
--   testdata/nginx.conf:24: limit_req zone=all burst=5 delay=3 in location /api/: nginx counts all places of a zone together, a policy counts each rule separately
--   testdata/nginx.conf:24: limit_req zone=all burst=5 delay=3 in location /api/ replaces the limit of line 17 in nginx; every rule that matches applies here
--   testdata/nginx.conf:28: not converted: limit_req zone=login burst=2 in location ~ \.php$: a rule matches a method and a path, in which * is one segment
--   testdata/nginx.conf:30: /search is a prefix; a rule's path has a fixed number of segments: the rule covers /search and needs a copy for each further depth
--   testdata/nginx.conf:30: location /search: the rule also counts requests of other locations that it matches
--   testdata/nginx.conf:32: not converted: limit_req zone=login in if $slow: a rule matches a method and a path, in which * is one segment
--   testdata/nginx.conf:34: limit_req zone=guests burst=2 in location /search replaces the limit of line 17 in nginx; every rule that matches applies here
--   testdata/nginx.conf:35: not converted: limit_req zone=hosts burst=2 in location /search: its zone was not converted or is missing
--   testdata/nginx.conf:36: not converted: limit_req zone=missing burst=2 in location /search: its zone was not converted or is missing
--   testdata/nginx.conf:37: not converted: limit_req zone=all burst=many in location /search: "burst=many" is not a parameter of limit_req
--   testdata/nginx.conf:42: not converted: deny 198.51.100.7: a policy blocks no clients
--   testdata/zones.conf:2: $http_authorization: the rule counts by the verified subject of the token, and requests without a valid token get 401
--   testdata/zones.conf:3: not converted: the key $server_name is one bucket for all clients; a rule counts by client address or by token
--   testdata/zones.conf:4: not converted: the key $cookie_session; a rule counts by client address or by token
--   testdata/zones.conf:5: not converted: limit_req_zone $binary_remote_addr zone=broken:10m rate=fast: want zone=NAME:SIZE and a rate such as 10r/s or 90r/m

return {
  trusted_proxies = {
    "10.0.0.0/8",
    "2001:db8::1/128",
  },
  rules = {
    -- testdata/nginx.conf:17: limit_req zone=all burst=20 nodelay
    { name = "all", key = "ip", rate = "10r/s", burst = 20 },
    -- testdata/nginx.conf:21: limit_req zone=login in location = /login
    { name = "login", key = "token", rate = "6r/m", burst = 0, match = { path = "/login" } },
    -- testdata/nginx.conf:24: limit_req zone=all burst=5 delay=3 in location /api/
    { name = "all-2", key = "ip", rate = "10r/s", burst = 5, delay = true, match = { path = "/api/*" }, mode = "shadow" },
    -- testdata/nginx.conf:34: limit_req zone=guests burst=2 in location /search
    { name = "guests", key = "ip", rate = "60r/m", burst = 2, delay = true, match = { path = "/search" } },
  },
}
