package nginx

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// from is a client's address as a trusted proxy reports it.
func from(address string) []string { return []string{"X-Forwarded-For", address} }

const trusting = `trusted_proxies = { "127.0.0.0/8" },`

func statuses(answers ...answer) string {
	out := make([]string, len(answers))
	for i, a := range answers {
		out[i] = fmt.Sprint(a.status)
	}
	return strings.Join(out, " ")
}

func TestRefusalNamesRuleAndRetryAfter(t *testing.T) {
	variants(t, refusalNamesRuleAndRetryAfter)
}

func refusalNamesRuleAndRetryAfter(t *testing.T, f *variant) {
	e := startEdge(t, `return { rules = { { name = "slow", key = "ip", rate = "6r/m", burst = 1 } } }`, f.on(t))
	first := e.do("GET", "/")
	if got := first.header.Get("RateLimit"); first.status != 200 || got != `"slow";r=1;t=10` {
		t.Errorf("first: status %d, RateLimit %q", first.status, got)
	}
	second := e.do("GET", "/")
	if got := second.header.Get("RateLimit-Policy"); second.status != 200 || got != `"slow";q=2;w=20` {
		t.Errorf("second: status %d, RateLimit-Policy %q", second.status, got)
	}
	third := e.send("POST", "/", "a body")
	want := map[string]string{
		"Content-Type":     "application/problem+json",
		"Cache-Control":    "no-store",
		"RateLimit-Policy": `"slow";q=2;w=20`,
		"RateLimit":        `"slow";r=0;t=10`,
	}
	for name, value := range want {
		if got := third.header.Get(name); got != value {
			t.Errorf("refused: %s is %q, want %q", name, got, value)
		}
	}
	if got := third.header.Get("Retry-After"); got != "10" && got != "11" {
		t.Errorf("Retry-After is %q, want 10 or, with its jitter, 11", got)
	}
	if len(third.header.Get("X-Request-Id")) != 32 {
		t.Errorf("X-Request-Id is %q", third.header.Get("X-Request-Id"))
	}
	if third.status != 429 || third.body != problemBody(429, "slow") {
		t.Errorf("refused: status %d, body %s", third.status, third.body)
	}
	entry := e.logged(1, 429)[0]
	if entry["verdict"] != "deny" || entry["rule"] != "slow" || entry["remaining"] != "0" ||
		entry["client"] != "127.0.0.1" {
		t.Errorf("logged %v", entry)
	}
}

// When the second of two limits refuses, the first one takes nothing: a refused request uses no quota.
func TestRefusalTakesNothingFromOtherBuckets(t *testing.T) {
	e := startEdge(t, `return { rules = {
		{ name = "wide",   key = "ip", rate = "1r/h", burst = 3 },
		{ name = "narrow", key = "ip", rate = "1r/h", burst = 0, match = { path = "/narrow" } },
	} }`, nil)
	if got := statuses(e.do("GET", "/narrow"), e.do("GET", "/narrow"), e.do("GET", "/narrow"),
		e.do("GET", "/narrow")); got != "200 429 429 429" {
		t.Fatalf("narrow: %s", got)
	}
	if got := statuses(e.do("GET", "/"), e.do("GET", "/"), e.do("GET", "/"), e.do("GET", "/")); got != "200 200 200 429" {
		t.Errorf("wide, after three refusals by narrow: %s, want 200 200 200 429", got)
	}
	// The same in reverse: narrow takes nothing while wide refuses.
	refused := e.do("GET", "/narrow")
	if !strings.Contains(refused.body, `"violated-policies":["wide"]`) {
		t.Errorf("both are full: %s, want the first of them named", refused.body)
	}
}

func TestShadowRuleIsCountedNotEnforced(t *testing.T) {
	t.Parallel()
	e := startEdge(t, `return { rules = {
		{ name = "trial", key = "ip",    rate = "1r/h", mode = "shadow" },
		{ name = "buyer", key = "token", rate = "1r/h", mode = "shadow" },
	} }`, nil)
	if got := statuses(e.do("GET", "/"), e.do("GET", "/"),
		e.do("GET", "/", "Authorization", "Bearer nonsense")); got != "200 200 200" {
		t.Errorf("shadow rules: %s", got)
	}
	var over int
	for _, entry := range e.logged(3, 200) {
		if entry["shadow"] == "trial" {
			over++
		}
	}
	if over != 2 {
		t.Errorf("%d of 3 requests were logged as over the trial limit, want 2", over)
	}
	if got := e.do("GET", "/").header.Get("RateLimit"); got != "" {
		t.Errorf("clients see a shadow rule: %q", got)
	}
}

func TestDelayingRuleSlowsBurstToRate(t *testing.T) {
	e := startEdge(t, `return { rules = { { name = "smooth", key = "ip", rate = "10r/s", burst = 4, delay = true } } }`,
		nil)
	done := make(chan time.Duration, 5)
	start := time.Now()
	for range 5 {
		go func() {
			if a := e.do("GET", "/"); a.status != 200 {
				t.Errorf("status %d within the burst", a.status)
			}
			done <- time.Since(start)
		}()
	}
	var last time.Duration
	for range 5 {
		last = <-done
	}
	if last < 380*time.Millisecond {
		t.Errorf("five requests at 10r/s were through after %s, want 0.4 s at least", last)
	}
}

func TestIPv6ClientsAreCountedByPrefix(t *testing.T) {
	variants(t, ipv6ClientsAreCountedByPrefix)
}

func ipv6ClientsAreCountedByPrefix(t *testing.T, f *variant) {
	e := startEdge(t, `return { `+trusting+` rules = {
		{ name = "a", key = "ip", rate = "1r/h", ipv6_prefix = 56, match = { path = "/a" } },
		{ name = "b", key = "ip", rate = "1r/h", ipv6_prefix = 48, match = { path = "/b" } },
	} }`, f.on(t))
	for _, c := range []struct {
		address, path string
		status        int
	}{
		{"2001:db8:0:1::1", "/a", 200}, {"2001:db8:0:ff::2", "/a", 429}, {"2001:db8:0:101::1", "/a", 200},
		{"2001:db8:0:1::1", "/b", 200}, {"2001:db8:0:ffff::2", "/b", 429}, {"2001:db8:1:1::1", "/b", 200},
		{"192.0.2.1", "/a", 200}, {"::ffff:192.0.2.1", "/a", 429}, {"192.0.2.2", "/a", 200}, {"192.0.2.2", "/b", 200},
	} {
		if got := e.do("GET", c.path, from(c.address)...).status; got != c.status {
			t.Errorf("%s %s: %d, want %d", c.address, c.path, got, c.status)
		}
	}
}

// In a full zone new clients are refused or admitted, as on_error specifies, and existing buckets stay.
func TestFullZoneKeepsBucketsInUse(t *testing.T) {
	root := workingCopy(t)
	rewrite(t, root+"/nginx/conf.d/20-lua.conf", "sluice_buckets 64m", "sluice_buckets 32k")
	e := startEdge(t, `return { `+trusting+` rules = {
		{ name = "strict",  key = "ip", rate = "1r/h", burst = 1, match = { path = "/strict" } },
		{ name = "lenient", key = "ip", rate = "1r/h", burst = 1, match = { path = "/lenient" }, on_error = "allow" },
	} }`, func(c *Config) { c.Root, c.Status = root, testenv.FreeAddress(t) })
	if got := statuses(e.do("GET", "/strict", from("192.0.2.1")...),
		e.do("GET", "/strict", from("192.0.2.1")...)); got != "200 200" {
		t.Fatalf("the first client: %s", got)
	}
	var full answer
	for i := range 2000 {
		full = e.do("GET", "/strict", from(fmt.Sprintf("10.0.%d.%d", i/250, i%250))...)
		if full.status != 200 {
			break
		}
	}
	if full.status != 503 || full.header.Get("Retry-After") == "" || full.body != problemBody(503, "") {
		t.Fatalf("with the zone full: status %d, Retry-After %q, %s", full.status, full.header.Get("Retry-After"), full.body)
	}
	if got := e.do("GET", "/strict", from("192.0.2.1")...).status; got != 429 {
		t.Errorf("the first client again: %d, want 429: a bucket in use was evicted", got)
	}
	for i := range 200 { // a few of them still get a bucket
		if got := e.do("GET", "/lenient", from(fmt.Sprintf("192.0.3.%d", i))...).status; got != 200 {
			t.Errorf("a rule with on_error = allow: %d, want 200", got)
		}
	}
	if entry := e.logged(1, 503)[0]; entry["verdict"] != "error" || entry["rule"] != "strict" ||
		entry["reason"] != "no memory" {
		t.Errorf("logged %v", entry)
	}
	testenv.Eventually(t, time.Minute, "both rules count requests without a bucket", func() bool {
		text := e.metrics()
		return roomless.strict.MatchString(text) && roomless.lenient.MatchString(text)
	})
}

var roomless = struct{ strict, lenient *regexp.Regexp }{
	regexp.MustCompile(`requests_total\{rule="strict",verdict="error"\} 1\n`),
	regexp.MustCompile(`requests_total\{rule="lenient",verdict="error"\} [1-9]`),
}

func TestReloadKeepsBuckets(t *testing.T) {
	variants(t, reloadKeepsBuckets)
}

func reloadKeepsBuckets(t *testing.T, f *variant) {
	e := startEdge(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`, f.on(t))
	e.do("GET", "/")
	if got := e.do("GET", "/").status; got != 429 {
		t.Fatalf("before the reload: %d", got)
	}
	e.writePolicy(
		`return { rules = { { name = "ip", key = "ip", rate = "1r/h" }, { name = "new", key = "ip", rate = "1r/h", match = { path = "/new" } } } }`,
	)
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.writePolicy(`return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 1 } } }`)
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Burst 1: one more request is admitted; with a new bucket it would be two.
	testenv.Eventually(t, time.Minute, "the new policy admits one more request",
		func() bool { return e.do("GET", "/").status == 200 })
	if got := e.do("GET", "/").status; got != 429 {
		t.Errorf("after the reload the bucket was empty: %d, want 429", got)
	}
	e.writePolicy(`return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 1, ipv6_prefix = 56 } } }`)
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "a rule that counts other networks starts with empty buckets",
		func() bool { return e.do("GET", "/").status == 200 })
}

// The name of a buyer can have the bytes of an address.
func TestRuleWithAnotherKeyStartsWithEmptyBuckets(t *testing.T) {
	t.Parallel()
	policy := func(key string) string {
		return `return { ` + trusting + ` rules = { { name = "a", key = "` + key + `", rate = "1r/h" } } }`
	}
	e := startEdge(t, policy("ip"), nil)
	abcd := from("97.98.99.100")
	if got := statuses(e.do("GET", "/", abcd...), e.do("GET", "/", abcd...)); got != "200 429" {
		t.Fatalf("before the reload: %s", got)
	}
	e.writePolicy(policy("token"))
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := e.do("GET", "/", "Authorization", signed(t, "abcd")).status; got != 200 {
		t.Errorf("the first request of a buyer: %d", got)
	}
}

// workingCopy is a copy of nginx/ beside a link to lua/, for tests that change a file.
func workingCopy(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, err := range []error{os.CopyFS(root+"/nginx", files), os.CopyFS(root+"/lua", os.DirFS("../lua"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func rewrite(t *testing.T, path, old, new string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not contain %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, new)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsCountVerdictsOfAllWorkersAndGenerations(t *testing.T) {
	t.Parallel()
	e := startEdge(t, `return { rules = {
		{ name = "ip",    key = "ip",    rate = "1r/h", burst = 2 },
		{ name = "trial", key = "ip",    rate = "1r/h", mode = "shadow" },
		{ name = "token", key = "token", rate = "1r/h", match = { path = "/paid" } },
	} }`, func(c *Config) { c.Status = testenv.FreeAddress(t) })
	if got := statuses(e.do("GET", "/"), e.do("GET", "/"), e.do("GET", "/paid"), e.do("GET", "/"),
		e.do("GET", "/")); got != "200 200 401 429 429" {
		t.Fatal(got)
	}
	want := []string{
		`requests_total{rule="ip",verdict="allow"} 2`,
		`requests_total{rule="ip",verdict="deny"} 2`,
		`requests_total{rule="trial",verdict="shadow"} 1`,
		"unauthorized_total 1",
		"buckets ",
		"bucket_capacity 14",
		"connections ",
	}
	reloaded := false
	testenv.Eventually(t, time.Minute, "the metrics have the counts, also after a reload", func() bool {
		text := e.metrics()
		for _, line := range want {
			if !strings.Contains(text, "\nsluice_edge_"+line) {
				return false
			}
		}
		if !reloaded {
			if err := e.cfg.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			reloaded = true
			return false
		}
		return true
	})
}

// A worker that shuts down finishes its requests, and its counters are not lost.
func TestMetricsCountRequestsOfAWorkerThatShutsDown(t *testing.T) {
	t.Parallel()
	e := startEdge(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`,
		func(c *Config) { c.Status, c.Workers = testenv.FreeAddress(t), 1 })
	out := ""
	for range 5 { // on a slow machine the shutdown may begin later than nginx waits for the head
		if out = e.getOverReload(t); out != "" {
			break
		}
	}
	if !strings.HasPrefix(out, "HTTP/1.1 200 ") {
		t.Fatalf("the old worker returned %q", out)
	}
	testenv.Eventually(t, time.Minute, "its requests are counted", func() bool {
		return strings.Contains(e.metrics(), "\nsluice_edge_requests_total{rule=\"ip\",verdict=\"allow\"} 1\n")
	})
}

// getOverReload begins a request, reloads, and completes the request when its worker shuts down. It returns the
// response, or "" if the connection was closed before.
func (e *edge) getOverReload(t *testing.T) string {
	t.Helper()
	conn, err := net.Dial("tcp", e.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil {
		t.Fatal(err)
	}
	e.do("GET", "/healthz") // the worker has handled all earlier requests
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the old worker shuts down", func() bool {
		return slices.ContainsFunc(e.workers(), ending)
	})
	_, _ = io.WriteString(conn, "\r\n")
	out, _ := io.ReadAll(conn)
	return string(out)
}
