package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

func TestInspectWarnings(t *testing.T) {
	files, _ := filepath.Glob("testdata/warn/*.lua")
	if len(files) < 12 {
		t.Fatalf("only %d files found", len(files))
	}
	for _, file := range files {
		expect := policy.Sizing{Keys: 10_000, Zone: 64 << 20, Buckets: 131_072}
		if strings.HasSuffix(file, "zone_too_small.lua") {
			expect = policy.Sizing{Keys: 30_000, Zone: 2 << 20, Buckets: 45_000}
		}
		_, warnings, err := policy.Inspect(file, expect)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if got, want := warnings.Error(), wanted(t, file); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
		}
	}
}

func TestDefaultPolicyHasNoWarnings(t *testing.T) {
	p, warnings, err := policy.Inspect("../../lua/policy.lua",
		policy.Sizing{Keys: 20_000, Zone: 64 << 20, Buckets: limit.DefaultCapacity})
	if err != nil || len(warnings) > 0 || len(p.Rules) == 0 {
		t.Errorf("%v, %v", err, warnings)
	}
	if _, _, err := policy.Inspect("testdata/bad/rate_zero.lua", policy.Sizing{}); err == nil {
		t.Error("an invalid policy is accepted")
	}
	if _, _, err := policy.Inspect("testdata/nowhere.lua", policy.Sizing{}); err == nil {
		t.Error("a missing file is accepted")
	}
}

// Under random traffic, a rule with the warning "never refuses a request" is never the only rule that refuses one.
func TestNeverRefusesWarningIsCorrect(t *testing.T) {
	found, file := 0, filepath.Join(t.TempDir(), "policy.lua")
	rapid.Check(t, func(t *rapid.T) {
		var source strings.Builder
		source.WriteString("return { rules = {\n")
		n := rapid.IntRange(2, 4).Draw(t, "rules")
		for i := range n {
			source.WriteString(
				"{ name = 'r" + string(
					rune('0'+i),
				) + "', key = 'ip', rate = '" + rapid.SampledFrom([]string{"1r/s", "2r/s", "5r/s"}).
					Draw(t, "rate") +
					"', burst = " +
					rapid.SampledFrom([]string{"1", "2", "4"}).
						Draw(t, "burst") +
					", match = { " + rapid.SampledFrom([]string{"", "method = 'GET',"}).
					Draw(t, "method") +
					rapid.SampledFrom([]string{"", "path = '/a'", "path = '/*'", "path = '/a/*'"}).
						Draw(t, "path") +
					" }, mode = '" + rapid.SampledFrom([]string{"enforce", "shadow"}).
					Draw(t, "mode") +
					"' },\n",
			)
		}
		source.WriteString("} }")
		if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		p, warnings, err := policy.Inspect(file, policy.Sizing{})
		if err != nil {
			t.Fatal(err)
		}
		never := map[int]bool{}
		for _, w := range warnings {
			if strings.Contains(w.Message, "never refuses a request") {
				never[w.Line-2] = true
				found++
			}
		}
		table := limit.NewTable(0)
		rules := make([]*limit.Rule, n)
		for i, r := range p.Rules {
			count, period := r.Rate.Fraction()
			rules[i] = limit.NewRule(limit.Rule{Count: count, Period: period, Burst: r.Burst, Shadow: r.Mode == policy.Shadow})
		}
		now := limit.Instant(1 << 40)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += limit.Instant(rapid.Int64Range(0, 1_000_000).Draw(t, "gap"))
			method, path := rapid.SampledFrom([]string{"GET", "POST"}).
				Draw(t, "m"),
				rapid.SampledFrom([]string{"/a", "/b", "/a/b", "/c/d/e"}).
					Draw(t, "p")
			// Check the rules with the warning first, so that their verdicts are evaluated.
			var checks []limit.Check
			var which []int
			for _, first := range []bool{true, false} {
				for i, r := range p.Rules {
					if never[i] == first && r.Match.Covers([]byte(method), []byte(path)) {
						checks, which = append(checks, limit.Check{Rule: rules[i]}), append(which, i)
					}
				}
			}
			if len(checks) == 0 {
				continue
			}
			refused := table.Take(now, checks)
			if refused < 0 {
				for i, c := range checks {
					if c.Verdict.Over && never[which[i]] {
						t.Fatalf("%s\nrule %d is a shadow and over", source.String(), which[i])
					}
				}
				continue
			}
			if never[which[refused]] {
				other := false
				for i := refused + 1; i < len(checks); i++ {
					other = other || !never[which[i]] && table.Peek(now, checks[i:i+1]) == 0
				}
				if !other {
					t.Fatalf("%s\nrule %d refuses %s %s, and no other does", source.String(), which[refused], method, path)
				}
			}
		}
	})
	if found == 0 {
		t.Error("no rule had the warning: the test proves nothing")
	}
}
