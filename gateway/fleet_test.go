package gateway

import (
	"errors"
	"strings"
	"testing"

	"sluice/gateway/policy"
	"sluice/internal/fleetlimit"
	"sluice/test/testenv"
)

// withRedis makes a gateway lease from a server.
func withRedis(t testing.TB, server *testenv.Redis) func(*Config) {
	t.Helper()
	client := server.Client()
	return func(c *Config) { c.Fleet = fleetlimit.NewClient(client, fleetlimit.Now) }
}

func TestGatewaysShareARuleOfTheFleet(t *testing.T) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	b := newBackend(t, nil)
	const rules = `return { rules = {
		{ name = "edge", key = "ip", rate = "1r/h", burst = 99 },
		{ name = "all", key = "ip", rate = "1r/h", burst = 9, scope = "fleet" },
		{ name = "trial", key = "ip", rate = "1r/h", burst = 3, scope = "fleet", mode = "shadow" },
	} }`
	edges := []*edge{
		serve(t, rules, []string{b.address()}, withRedis(t, server)),
		serve(t, rules, []string{b.address()}, withRedis(t, server)),
	}
	admitted, refused := 0, response{}
	for i := range 30 {
		r := edges[i%2].send(t, "GET", "/", "")
		switch r.status {
		case 200:
			admitted++
		case 429:
			refused = r
		default:
			t.Fatalf("status %d", r.status)
		}
	}
	if admitted < 8 || admitted > 10 {
		t.Errorf("%d requests admitted, want the burst of 9, and at most one more", admitted)
	}
	if refused.status == 0 {
		t.Fatal("no request was refused")
	}
	mustHave(t, refused, 429, "RateLimit-Policy", `"all";q=10;w=36000`)
	if !strings.HasPrefix(refused.header.Get("RateLimit"), `"all";r=0;t=`) {
		t.Errorf("RateLimit: %s", refused.header.Get("RateLimit"))
	}
	sum := func(name string, labels ...string) (n float64) {
		for _, e := range edges {
			n += e.count(t, name, labels...)
		}
		return n
	}
	if n := sum("sluice_edge_requests_total", "rule", "all", "verdict", "allow"); n != float64(admitted) {
		t.Errorf("%v requests counted, want %d", n, admitted)
	}
	if n := sum("sluice_edge_requests_total", "rule", "trial", "verdict", "shadow"); n == 0 {
		t.Error("the shadow rule was never over")
	}
	if n := sum("sluice_edge_fleet_leases_total", "result", "granted"); n == 0 || n > 20 {
		t.Errorf("%v leases", n)
	}
}

// A request that another rule refuses costs nothing.
func TestEdgeRuleRefusesBeforeTheFleet(t *testing.T) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	b := newBackend(t, nil)
	e := serve(t, `return { rules = {
		{ name = "all", key = "ip", rate = "1r/h", burst = 9, scope = "fleet" },
		{ name = "edge", key = "ip", rate = "1r/h", burst = 0 },
	} }`, []string{b.address()}, withRedis(t, server))
	mustHave(t, e.send(t, "GET", "/", ""), 200)
	for range 20 {
		mustHave(t, e.send(t, "GET", "/", ""), 429, "RateLimit-Policy", `"edge";q=1;w=3600`)
	}
	if n := e.count(t, "sluice_edge_requests_total", "rule", "all", "verdict", "allow"); n != 1 {
		t.Errorf("the rule of the fleet counted %v requests, want 1", n)
	}
	if n := e.count(t, "sluice_edge_fleet_leases_total", "result", "granted"); n != 1 {
		t.Errorf("%v leases, want 1", n)
	}
}

func TestUnreachableRedisIsHandledAsOnError(t *testing.T) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	b := newBackend(t, nil)
	e := serve(t, `return { rules = {
		{ name = "deny", key = "ip", rate = "1r/h", burst = 9, scope = "fleet", match = { path = "/deny" } },
		{ name = "open", key = "ip", rate = "1r/h", burst = 9, scope = "fleet", match = { path = "/open" }, on_error = "allow" },
	} }`, []string{b.address()}, withRedis(t, server))
	mustHave(t, e.send(t, "GET", "/deny", ""), 200)
	server.Kill()
	for range 5 {
		mustHave(t, e.send(t, "GET", "/open", ""), 200)
		mustHave(t, e.send(t, "GET", "/deny", ""), 503, "Retry-After", "1")
	}
	if n := e.count(t, "sluice_edge_requests_total", "rule", "open", "verdict", "error"); n != 5 {
		t.Errorf("%v requests passed uncounted, want 5", n)
	}
}

func TestRuleOfTheFleetNeedsRedis(t *testing.T) {
	_, err := New(Config{Shared: shared("127.0.0.1:1"), PolicySource: []byte(
		`return { rules = { { name = "all", key = "ip", rate = "1r/s", burst = 9, scope = "fleet" } } }`)})
	const want = `policy.lua: rule "all" has scope = "fleet", which needs a Redis server: set ` +
		`SLUICE_LIMIT_REDIS_URL, or --limit-redis of sluice edge and sluice gateway`
	if found, ok := errors.AsType[policy.Findings](err); !ok || found.Error() != want {
		t.Errorf("New returned %v, want %s", err, want)
	}
}

func TestBuyerIsOneClientOfTheFleet(t *testing.T) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	b := newBackend(t, nil)
	e := serve(t, `return { rules = {
		{ name = "buy", key = "token", rate = "1r/h", burst = 1, scope = "fleet" },
	} }`, []string{b.address()}, withRedis(t, server))
	mustHave(t, e.send(t, "GET", "/", ""), 401)
	for _, buyer := range []string{"ann", "ben"} {
		mustHave(t, e.send(t, "GET", "/", "", bearerOf(t, buyer)), 200)
		e.send(t, "GET", "/", "", bearerOf(t, buyer)) // 200 or 429: the time of the next slot is unknown
		mustHave(t, e.send(t, "GET", "/", "", bearerOf(t, buyer)), 429)
	}
}

// A refusal by a rule of the fleet that counts by address does not depend on the buyer, and is logged without one.
func TestFleetRefusalByAddressIsLoggedWithoutTheBuyer(t *testing.T) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	b := newBackend(t, nil)
	log := &testenv.Buffer{}
	e := serve(t, `return { rules = {
		{ name = "all", key = "ip", rate = "1r/h", burst = 1, scope = "fleet", match = { path = "/a" } },
		{ name = "buy", key = "token", rate = "1r/h", burst = 1, scope = "fleet", match = { path = "/b" } },
		{ name = "plenty", key = "token", rate = "1r/h", burst = 9 },
	} }`, []string{b.address()}, withRedis(t, server), func(c *Config) { c.AccessLog = log })
	ann := bearerOf(t, "ann")
	for _, c := range []struct{ path, rule, buyer string }{{"/a", "all", ""}, {"/b", "buy", "ann"}} {
		e.send(t, "GET", c.path, "", ann)
		e.send(t, "GET", c.path, "", ann) // 200 or 429: the time of the next slot is unknown
		mustHave(t, e.send(t, "GET", c.path, "", ann), 429)
		e.access.flush()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		mustContain(t, "the log", lines[len(lines)-1], `"buyer":"`+c.buyer+`"`)
		mustContain(t, "the log", lines[len(lines)-1], `"rule":"`+c.rule+`"`)
	}
}
