package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

func mustHave(t *testing.T, got response, status int, headers ...string) {
	t.Helper()
	if got.status != status {
		t.Fatalf("status %d, want %d: %+v", got.status, status, got)
	}
	for i := 0; i < len(headers); i += 2 {
		if value := got.header.Get(headers[i]); value != headers[i+1] {
			t.Errorf("%s is %q, want %q", headers[i], value, headers[i+1])
		}
	}
}

func TestResponsesContainTheQuota(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()})
	mustHave(t, e.send(t, "GET", "/v1/sales/42", ""), 200, "RateLimit", `"ip";r=5;t=1`, "RateLimit-Policy", `"ip";q=6;w=6`)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", bearerOf(t, "ann")), 200,
		"RateLimit", `"ip";r=4;t=1, "token";r=1;t=1`, "RateLimit-Policy", `"ip";q=6;w=6, "token";q=2;w=2`)
}

func TestQuotaOfTheBackendIsKept(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("RateLimit", `"user";r=1;t=1`) })
	e := serve(t, shop, []string{b.address()})
	got := e.send(t, "GET", "/v1/sales", "")
	if all := strings.Join(got.header.Values("RateLimit"), ", "); all != `"user";r=1;t=1, "ip";r=5;t=1` {
		t.Errorf("RateLimit is %s, want the members of backend and edge", all)
	}
}

func TestAddressOverItsLimitIsRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()})
	for range 6 {
		mustHave(t, e.send(t, "GET", "/v1/sales", ""), 200)
	}
	got := e.send(t, "GET", "/v1/sales", "")
	mustHave(t, got, 429, "RateLimit", `"ip";r=0;t=1`, "RateLimit-Policy", `"ip";q=6;w=6`, "Retry-After", "1",
		"Cache-Control", "no-store", "Content-Type", "application/problem+json")
	const want = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many ` +
		`requests","status":429,` +
		`"detail":"Too many requests: the policy \"ip\" allows no more right now.","code":"quota-exceeded",` +
		`"violated-policies":["ip"]}`
	if got.body != want {
		t.Errorf("the body is\n%s, want\n%s", got.body, want)
	}
	e.ms.Add(999)
	mustHave(t, e.send(t, "GET", "/v1/sales", ""), 429)
	e.ms.Add(1)
	mustHave(t, e.send(t, "GET", "/v1/sales", ""), 200)
	if n := len(b.requests()); n != 7 {
		t.Errorf("%d requests reached the backend, want 7", n)
	}
	if n := e.count(t, "sluice_edge_requests_total", "rule", "ip", "verdict", "deny"); n != 2 {
		t.Errorf("counted %v denied, want 2", n)
	}
	if n := e.count(t, "sluice_edge_requests_total", "rule", "ip", "verdict", "allow"); n != 7 {
		t.Errorf("counted %v allowed, want 7", n)
	}
}

func TestBuyerOverTheLimitUsesNoQuotaOfTheAddress(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()})
	ann := bearerOf(t, "ann")
	for range 2 {
		mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", ann), 200)
	}
	for range 20 {
		got := e.send(t, "POST", "/v1/sales/43/orders", "{}", ann)
		mustHave(t, got, 429, "RateLimit", `"token";r=0;t=1`, "RateLimit-Policy", `"token";q=2;w=2`)
		mustContain(t, "the body", got.body, `"violated-policies":["token"]`)
	}
	mustHave(t, e.send(t, "GET", "/v1/sales", ""), 200, "RateLimit", `"ip";r=3;t=1`)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", bearerOf(t, "bob")), 200)
}

// Other tokens of the same buyer, and tokens in the other header, share the bucket.
func TestBucketBelongsToTheSubject(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()})
	first, second := sign(t, "ann", time.Hour), sign(t, "ann", 2*time.Hour)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", "Authorization: Bearer "+first), 200)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", "authorization: bearer "+second), 200)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", "token: "+first), 429)
}

func TestRequestsWithoutValidTokenAreRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, strings.Replace(shop, "burst = 5", "burst = 1000", 1), []string{b.address()})
	good := sign(t, "ann", time.Hour)
	parts := strings.Split(good, ".")
	forged := tokentest.Sign(t, strings.Repeat("x", 32), "ann", time.Hour)
	encode := func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) }
	claims := encode(fmt.Sprintf(`{"sub":"ann","exp":%d}`, time.Now().Add(time.Hour).Unix()))
	for name, lines := range map[string][]string{
		"none":               nil,
		"empty":              {"Authorization: Bearer "},
		"empty token header": {"token:"},
		"another scheme":     {"Authorization: Basic " + good},
		"no scheme":          {"Authorization: " + good},
		"expired":            {"Authorization: Bearer " + sign(t, "ann", -time.Minute)},
		"wrong key":          {"Authorization: Bearer " + forged},
		"alg none":           {"Authorization: Bearer " + encode(`{"alg":"none","typ":"JWT"}`) + "." + claims + "."},
		"alg None":           {"Authorization: Bearer " + encode(`{"alg":"None"}`) + "." + claims + "." + parts[2]},
		"alg HS512": {
			"Authorization: Bearer " + encode(`{"alg":"HS512","typ":"JWT"}`) + "." + claims + "." + parts[2],
		},
		"two segments":             {"Authorization: Bearer " + parts[0] + "." + parts[1]},
		"three and a half":         {"Authorization: Bearer " + good + "."},
		"four segments":            {"Authorization: Bearer " + good + "." + parts[2]},
		"other claims":             {"Authorization: Bearer " + parts[0] + "." + claims + "." + parts[2]},
		"signature cut short":      {"Authorization: Bearer " + good[:len(good)-1]},
		"no subject":               {"Authorization: Bearer " + sign(t, "", time.Hour)},
		"garbage":                  {"Authorization: Bearer ..."},
		"too long":                 {"Authorization: Bearer " + good + strings.Repeat("A", 5000)},
		"tab after the scheme":     {"Authorization: Bearer\t" + good},
		"good token, bad bearer":   {"token: " + good, "Authorization: Bearer " + forged},
		"good token, other scheme": {"token: " + good, "Authorization: Basic eDp5"},
	} {
		got := e.send(t, "POST", "/v1/sales/42/orders", "{}", lines...)
		if got.status != 401 {
			t.Errorf("%s: status %d, want 401", name, got.status)
			continue
		}
		mustHave(t, got, 401, "WWW-Authenticate", `Bearer error="invalid_token"`, "Cache-Control", "no-store", "Content-Type",
			"application/problem+json")
		if want := `{"type":"about:blank","title":"Unauthorized","status":401,"detail":"A valid token is required.",` +
			`"code":"unauthorized"}`; got.body != want {
			t.Errorf("%s: the body is %s, want %s", name, got.body, want)
		}
	}
	for name, lines := range map[string][]string{
		"two Authorization lines": {"Authorization: Bearer " + good, "Authorization: Bearer " + good},
		"two token lines":         {"token: " + good, "token: " + good},
	} {
		if got := e.send(t, "POST", "/v1/sales/42/orders", "{}", lines...); got.status != 400 {
			t.Errorf("%s: status %d, want 400", name, got.status)
		}
	}
	if n := len(b.requests()); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", "Authorization: BEARER   "+good), 200)
	// Without a rule by token, no token is required.
	mustHave(t, e.send(t, "GET", "/v1/orders/1", ""), 200)
}

// The refusal does not depend on the token, cached or not.
func TestAddressOverItsLimitIsRefusedForAllBuyers(t *testing.T) {
	b := newBackend(t, nil)
	var lines bytes.Buffer
	e := serve(
		t,
		`return { rules = { { name = "ip", key = "ip", rate = "1r/h" }, { name = "token", key = "token", rate = "1r/h", `+
			`burst = 9 } } }`,
		[]string{b.address()},
		func(c *Config) { c.AccessLog = &lines },
	)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", bearerOf(t, "ann")), 200, "RateLimit",
		`"ip";r=0;t=3600, "token";r=9;t=3600`)
	for _, name := range []string{"ann", "bob"} {
		got := e.send(t, "POST", "/v1/sales/42/orders", "{}", bearerOf(t, name))
		mustHave(t, got, 429, "RateLimit-Policy", `"ip";q=1;w=3600`)
	}
	e.runOnce()
	e.access.mu.Lock()
	defer e.access.mu.Unlock()
	got := regexp.MustCompile(`"buyer":"(\w*)"`).FindAllString(lines.String(), -1)
	if want := []string{`"buyer":"ann"`, `"buyer":""`, `"buyer":""`}; !slices.Equal(got, want) {
		t.Errorf("buyers in the log: %v, want %v", got, want)
	}
}

// Rules by address come first, so that a flood of forged tokens from one address is refused before signatures are
// verified.
func TestInvalidTokensUseTheQuotaOfTheAddress(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()})
	for range 6 {
		mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", "token: a.b.c"), 401)
	}
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", "token: a.b.c"), 429, "RateLimit-Policy", `"ip";q=6;w=6`)
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}", bearerOf(t, "ann")), 429, "RateLimit-Policy",
		`"ip";q=6;w=6`)
	if n := e.count(t, "sluice_edge_unauthorized_total"); n != 6 {
		t.Errorf("counted %v unauthorized, want 6", n)
	}
}

func TestShadowRulesDoNotRefuse(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, `return { rules = {
		{ name = "tight", key = "ip", rate = "1r/s", mode = "shadow" },
		{ name = "buyer", key = "token", rate = "1r/s", mode = "shadow" },
	} }`, []string{b.address()})
	for range 3 {
		got := e.send(t, "GET", "/v1/sales", "", bearerOf(t, "ann"))
		mustHave(t, got, 200, "RateLimit", "", "RateLimit-Policy", "")
	}
	mustHave(t, e.send(t, "GET", "/v1/sales", ""), 200)
	mustHave(t, e.send(t, "GET", "/v1/sales", "", "token: nonsense"), 200)
	for rule, want := range map[string]float64{"tight": 4, "buyer": 2} {
		if n := e.count(t, "sluice_edge_requests_total", "rule", rule, "verdict", "shadow"); n != want {
			t.Errorf("%s: counted %v as shadow, want %v", rule, n, want)
		}
		if n := e.count(t, "sluice_edge_requests_total", "rule", rule, "verdict", "allow"); n != 1 {
			t.Errorf("%s: counted %v as allowed, want 1", rule, n)
		}
	}
}

func TestDelay(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, `return { rules = { { name = "slow", key = "ip", rate = "10r/s", burst = 3, delay = true } } }`,
		[]string{b.address()})
	mustHave(t, e.send(t, "GET", "/", ""), 200)
	start := time.Now()
	mustHave(t, e.send(t, "GET", "/", ""), 200)
	if d := time.Since(start); d < 100*time.Millisecond {
		t.Errorf("the second request took %v, want at least 100ms", d)
	}
}

func TestFullBucketTableIs503(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, `return { trusted_proxies = { "127.0.0.0/8" }, rules = {
		{ name = "ip", key = "ip", rate = "1r/h", burst = 10, match = { path = "/deny" } },
		{ name = "kind", key = "ip", rate = "1r/h", burst = 10, match = { path = "/allow" }, on_error = "allow" },
	} }`, []string{b.address()}, func(c *Config) { c.Buckets = 1 })
	mustHave(t, e.send(t, "GET", "/deny", "", "X-Forwarded-For: 198.51.100.1"), 200)
	got := e.send(t, "GET", "/deny", "", "X-Forwarded-For: 198.51.100.2")
	mustHave(t, got, 503, "Retry-After", "1", "Content-Type", "application/problem+json")
	mustContain(t, "the body", got.body, `"code":"temporarily-unavailable"`)
	mustHave(t, e.send(t, "GET", "/allow", "", "X-Forwarded-For: 198.51.100.2"), 200, "RateLimit", "")
	mustHave(t, e.send(t, "GET", "/deny", "", "X-Forwarded-For: 198.51.100.1"), 200, "RateLimit", `"ip";r=9;t=3600`)
	for rule, want := range map[string]float64{"ip": 1, "kind": 1} {
		if n := e.count(t, "sluice_edge_requests_total", "rule", rule, "verdict", "error"); n != want {
			t.Errorf("%s: counted %v errors, want %v", rule, n, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		wait   time.Duration
		random int
		want   int64
	}{
		{0, 0, 1}, {time.Millisecond, 0, 1}, {time.Second, 0, 1}, {time.Second, 1, 2}, {time.Second + 1, 0, 2},
		{9500 * time.Millisecond, 1, 11}, {100 * time.Second, 10, 110}, {100 * time.Hour, 3600, 363600},
	} {
		most := 0
		got := retryAfter(c.wait, func(n int) int { most = n - 1; return c.random })
		if got != c.want {
			t.Errorf("wait %v, random %d: %d, want %d", c.wait, c.random, got, c.want)
		}
		if limit := max(1, min(int(wholeSeconds(c.wait)/10), 3600)); most != limit {
			t.Errorf("wait %v: jitter of up to %d s, want %d", c.wait, most, limit)
		}
	}
}

func TestHealthIsAnsweredByTheEdge(t *testing.T) {
	e := serve(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`, []string{"127.0.0.1:1"})
	for range 3 {
		got := e.send(t, "GET", "/healthz", "")
		mustHave(t, got, 200, "Content-Type", "application/json", "RateLimit", "")
		if got.body != `{"status":"ok"}` {
			t.Errorf("the body is %s", got.body)
		}
	}
	mustHave(t, e.send(t, "GET", "/healthz?x=y", ""), 200)
	mustHave(t, e.send(t, "POST", "/healthz", ""), 405, "Allow", "GET, HEAD")
}

func TestInternalPathsAreHidden(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for _, target := range []string{
		"/admin", "/admin/", "/admin/v1/sales", "/admin/v1/dead/1/retry", "/ADMIN/v1/sales", "/%61dmin/v1/sales",
		"/metrics", "/metrics?x", "/Metrics/", "/debug/pprof",
	} {
		got := e.send(t, "GET", target, "", "Authorization: Bearer operator")
		mustHave(t, got, 404, "Content-Type", "application/problem+json")
		if want := `{"type":"about:blank","title":"Not found","status":404,"detail":"Not found.",` +
			`"code":"not-found"}`; got.body != want {
			t.Errorf("%s: the body is %s", target, got.body)
		}
	}
	if n := len(b.requests()); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
}

func TestAccessLogContainsDecisions(t *testing.T) {
	b := newBackend(t, nil)
	log := &testenv.Buffer{}
	e := serve(t, shop, []string{b.address()}, func(c *Config) { c.AccessLog = log })
	e.send(t, "GET", "/healthz", "")
	e.send(t, "POST", "/v1/sales/42/orders", "{}", bearerOf(t, "ann"), `User-Agent: "quoted"\`+"\t\xff")
	e.send(t, "POST", "/v1/sales/42/orders", "{}", "token: nonsense")
	for range 4 {
		e.send(t, "GET", "/v1/s%61les", "")
	}
	e.send(t, "GET", "/v1/sales", "")
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	type line struct {
		Time      float64
		Client    string
		Buyer     string
		Method    string
		Path      string
		Status    int
		Verdict   string
		Rule      string
		Remaining string
		Reason    string
		RequestID string `json:"request_id"`
		Upstream  string
		Agent     string
	}
	var got []line
	for text := range strings.Lines(log.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if l.Time < 1e9 || len(l.RequestID) != 32 || l.Client != "127.0.0.1" {
			t.Errorf("%s: time, request id or client missing", text)
		}
		l.Time, l.RequestID, l.Client = 0, "", ""
		got = append(got, l)
	}
	if len(got) != 7 {
		t.Fatalf("%d lines, want 7 (health is not logged)", len(got))
	}
	for i, want := range map[int]line{
		0: {
			Buyer: "ann", Method: "POST", Path: "/v1/sales/42/orders", Status: 200, Verdict: "allow", Rule: "token",
			Remaining: "1", Upstream: b.address(), Agent: "\"quoted\"\\\t\ufffd",
		},
		2: {
			Method: "GET", Path: "/v1/sales", Status: 200, Verdict: "allow", Rule: "ip", Remaining: "3",
			Upstream: b.address(),
		},
		6: {Method: "GET", Path: "/v1/sales", Status: 429, Verdict: "deny", Rule: "ip", Remaining: "0"},
	} {
		if got[i] != want {
			t.Errorf("line %d is\n%+v, want\n%+v", i, got[i], want)
		}
	}
	if l := got[1]; l.Verdict != "unauthorized" || l.Status != 401 || l.Reason == "" {
		t.Errorf("the refused token is logged as %+v", l)
	}
}
