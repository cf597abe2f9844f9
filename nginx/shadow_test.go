package nginx

import (
	"testing"
	"time"

	"sluice/test/testenv"
)

// A shadow rule beside an enforced rule of the same key, rate and burst: each counts in its own buckets, and neither
// uses the quota of the other.
func TestShadowRuleHasItsOwnBuckets(t *testing.T) {
	e := startEdge(t, `return { rules = {
		{ name = "live",  key = "ip",    rate = "1r/h", burst = 2 },
		{ name = "trial", key = "ip",    rate = "1r/h", burst = 0, mode = "shadow", match = { path = "/a" } },
		{ name = "buyer", key = "token", rate = "1r/h", burst = 1, mode = "shadow" },
	} }`, nil)
	ann := signed(t, "ann")
	steps := []struct {
		path     string
		status   int
		limits   string
		verdict  string
		overRule string
	}{
		{"/a", 200, `"live";r=2;t=3600`, "allow", ""},
		{"/b", 200, `"live";r=1;t=3600`, "allow", ""},      // trial does not cover it
		{"/a", 200, `"live";r=0;t=3600`, "allow", "buyer"}, // trial is over as well: the log names the last of them
		{"/a", 429, `"live";r=0;t=3600`, "deny", ""},       // which the shadow rules do not count
	}
	for i, s := range steps {
		got := e.do("GET", s.path, "Authorization", ann)
		if got.status != s.status || got.header.Get("RateLimit") != s.limits {
			t.Errorf("request %d: %d %q, want %d %q", i, got.status, got.header.Get("RateLimit"), s.status, s.limits)
		}
	}
	logged := append(e.logged(3, 200), e.logged(1, 429)...)
	for i, s := range steps {
		if logged[i]["verdict"] != s.verdict || logged[i]["shadow"] != s.overRule {
			t.Errorf("request %d is logged as %v and shadow %v, want %s and %q", i, logged[i]["verdict"], logged[i]["shadow"],
				s.verdict, s.overRule)
		}
	}
}

// A shadow rule that is enforced does not refuse clients that were over its limit before.
func TestEnforcedShadowRuleStartsWithEmptyBuckets(t *testing.T) {
	policy := func(mode string) string {
		return `return { rules = { { name = "trial", key = "ip", rate = "1r/h", burst = 1, mode = "` + mode + `" } } }`
	}
	e := startEdge(t, policy("shadow"), nil)
	if got := statuses(e.do("GET", "/"), e.do("GET", "/"), e.do("GET", "/"), e.do("GET", "/")); got != "200 200 200 200" {
		t.Fatal(got)
	}
	e.writePolicy(policy("enforce"))
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Clients see no field of the shadow rule, and a field of the enforced one from its first request on.
	first := answer{}
	testenv.Eventually(t, time.Minute, "the rule is enforced", func() bool {
		first = e.do("GET", "/")
		return first.status != 200 || first.header.Get("RateLimit") != ""
	})
	if got := first.header.Get("RateLimit"); first.status != 200 || got != `"trial";r=1;t=3600` {
		t.Errorf("its first request: %d, RateLimit %q", first.status, got)
	}
	if got := statuses(e.do("GET", "/"), e.do("GET", "/")); got != "200 429" {
		t.Errorf("the next two: %s, want 200 429", got)
	}
}
