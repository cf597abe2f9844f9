package gateway

import (
	"path/filepath"
	"testing"
	"time"

	"sluice/test/testenv"
)

// A shadow rule and an enforced rule with the same key, rate and burst must not share buckets.
func TestShadowRuleHasItsOwnBuckets(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, `return { rules = {
		{ name = "live",  key = "ip", rate = "1r/m", burst = 1 },
		{ name = "trial", key = "ip", rate = "1r/m", burst = 0, mode = "shadow" },
		{ name = "buyer", key = "token", rate = "1r/m", burst = 0, mode = "shadow" },
	} }`, []string{b.address()})
	ann := bearerOf(t, "ann")
	counts := func(want map[string]float64) {
		t.Helper()
		for rule, n := range want {
			name, verdict := rule[:5], rule[6:]
			if name == "live " {
				name, verdict = "live", rule[5:]
			}
			if got := e.count(t, "sluice_edge_requests_total", "rule", name, "verdict", verdict); got != n {
				t.Errorf("%s: %v, want %v", rule, got, n)
			}
		}
	}
	mustHave(t, e.send(t, "GET", "/", "", ann), 200, "RateLimit", `"live";r=1;t=60`)
	mustHave(t, e.send(t, "GET", "/", "", ann), 200, "RateLimit",
		`"live";r=0;t=60`) // both shadows are over, and use no quota of live
	counts(map[string]float64{"live allow": 2, "trial allow": 1, "trial shadow": 1, "buyer allow": 1, "buyer shadow": 1})
	mustHave(t, e.send(t, "GET", "/", "", ann), 429, "RateLimit-Policy", `"live";q=2;w=120`) // not counted by the shadows
	counts(map[string]float64{"live deny": 1, "trial allow": 1, "trial shadow": 1, "buyer allow": 1, "buyer shadow": 1})
	e.ms.Add(60_000) // one more request for each rule
	mustHave(t, e.send(t, "GET", "/", "", ann), 200, "RateLimit", `"live";r=0;t=60`)
	counts(map[string]float64{"live allow": 3, "trial allow": 2, "trial shadow": 1, "buyer allow": 2, "buyer shadow": 1})
}

// A client over a shadow limit must not be refused immediately when the rule is enforced.
func TestEnforcedShadowRuleStartsWithEmptyBuckets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.lua")
	policy := func(mode string) string {
		return `return { rules = { { name = "trial", key = "ip", rate = "1r/h", burst = 0, mode = "` + mode + `" } } }`
	}
	write(t, path, policy("shadow"), time.Hour)
	b := newBackend(t, nil)
	e := serve(t, "", []string{b.address()}, func(c *Config) { c.PolicyPath = path })
	for range 3 {
		mustHave(t, e.send(t, "GET", "/", ""), 200)
	}
	write(t, path, policy("enforce"), time.Minute)
	testenv.Eventually(t, time.Minute, "the rule is enforced", func() bool {
		return e.count(t, "sluice_edge_policy_reloads_total", "result", "ok") == 1
	})
	mustHave(t, e.send(t, "GET", "/", ""), 200)
	mustHave(t, e.send(t, "GET", "/", ""), 429)
}
