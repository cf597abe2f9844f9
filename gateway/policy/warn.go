package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Expect is what a policy is to be enough for.
type Expect struct {
	Keys    int   // different clients, and as many buyers, within the time that a bucket takes to come back; 0: do not ask about room
	Zone    int64 // bytes of the nginx edge's zone sluice_buckets
	Buckets int   // live buckets of the Go gateway
}

// Inspect reads the policy file at path, which may be a pipe. Besides what is wrong with it, a Mistakes, it returns what is allowed and most likely not meant.
func Inspect(path string, e Expect) (*Policy, Mistakes, error) {
	source, err := load(path)
	if err != nil {
		return nil, nil, err
	}
	p, w, err := parseSource(path, source)
	if err != nil {
		return nil, nil, err
	}
	return p, p.warnings(path, w, e), nil
}

func (p *Policy) warnings(file string, w written, e Expect) (warnings Mistakes) {
	warn := func(line int, format string, args ...any) {
		warnings = append(warnings, Mistake{File: file, Line: line, What: fmt.Sprintf(format, args...)})
	}
	if w.steps > maxInstructions/2 {
		warn(0, "takes %d of the %d steps that it may take, and the nginx edge counts a few more: compute less", w.steps, maxInstructions)
	}
	for _, proxy := range p.TrustedProxies {
		if proxy.Bits() == 0 {
			warn(w.proxies, "trusted_proxies holds %s: every client can claim any address; name your proxies only", proxy)
		}
	}
	for i, r := range p.Rules {
		if what := r.unlikely(); what != "" {
			warn(w.rule[i], "rule %s %s", quote(r.Name), what)
		}
		if what := p.unreachable(i); what != "" {
			warn(w.rule[i], "rule %s %s", quote(r.Name), what)
		}
		if r.Key == ByToken && r.Mode == Enforce && !p.guarded(r) {
			warn(w.rule[i], `rule %s has no rule with key = "ip" before it: a flood of made-up tokens costs a signature each; add one that covers the same requests`, quote(r.Name))
		}
	}
	if what := p.crowded(e); what != "" {
		warn(w.rules, "%s", what)
	}
	slices.SortStableFunc(warnings, func(a, b Mistake) int { return a.Line - b.Line })
	return warnings
}

// tick is how well clients, networks and event loops keep time, in seconds: requests that were sent evenly arrive in bunches of this length.
const tick = 0.001

// unlikely says what in the rule by itself was most likely not meant, or "".
func (r Rule) unlikely() string {
	if least := math.Ceil(r.Rate.PerSecond()*tick) - 1; float64(r.Burst) < least {
		return fmt.Sprintf("has burst %d and lets %.0f through a millisecond on average: requests arrive in bunches of that length, and even those that keep to the rate "+
			"are refused; use a burst of %.0f or more", r.Burst, r.Rate.PerSecond()*tick, least)
	}
	if r.Delay && r.Burst == 0 {
		return "has delay = true and no burst: there is nothing to delay; add a burst or leave delay out"
	}
	if own := ownPath(r.Match.Path); own != "" {
		return fmt.Sprintf("can never match: the edge answers %s by itself; leave the rule out", own)
	}
	return ""
}

// ownPath is what of the edge's own paths a pattern stands for, or "".
func ownPath(pattern string) string {
	first, rest, deeper := strings.Cut(strings.ToLower(strings.TrimPrefix(pattern, "/")), "/")
	switch {
	case pattern == "/healthz":
		return pattern
	case strings.HasPrefix(first, "admin"):
		return "/admin..."
	case first == "metrics", first == "debug", first == ".sluice":
		if deeper && rest != "" {
			return "/" + first + "/..."
		}
		return "/" + first
	}
	return ""
}

// unreachable says why the i-th rule can never be the one that refuses, or "".
func (p *Policy) unreachable(i int) string {
	r := p.Rules[i]
	for j, other := range p.Rules {
		if j == i || other.Key != r.Key || other.Mode != Enforce || !other.Match.includes(r.Match) {
			continue
		}
		same := other.Rate.PerSecond() == r.Rate.PerSecond() && other.Burst == r.Burst && other.Match == r.Match && other.Delay == r.Delay && r.Mode == Enforce
		switch {
		case same && j < i:
			return fmt.Sprintf("is the same as rule %s: take one out", quote(other.Name))
		case same:
		case other.Rate.PerSecond() <= r.Rate.PerSecond() && other.Burst <= r.Burst && (other.Delay || !r.Delay):
			return fmt.Sprintf("never refuses anything: rule %s looks at all of its requests and is as strict; take it out, or make it stricter", quote(other.Name))
		}
	}
	return ""
}

// guarded says whether an enforced rule by address looks at everything that r does.
func (p *Policy) guarded(r Rule) bool {
	return slices.ContainsFunc(p.Rules, func(o Rule) bool { return o.Key == ByIP && o.Mode == Enforce && o.Match.includes(r.Match) })
}

// includes says whether m covers every request that other covers.
func (m Match) includes(other Match) bool {
	if m.Method != "" && m.Method != other.Method {
		return false
	}
	if m.Path == "" || other.Path == "" {
		return m.Path == ""
	}
	mine, theirs := strings.Split(m.Path, "/"), strings.Split(other.Path, "/")
	return slices.EqualFunc(mine, theirs, func(a, b string) bool { return a == "*" && b != "" || b != "*" && asciiFold(a) == asciiFold(b) })
}

func asciiFold(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] = lower(b[i])
	}
	return string(b)
}

// crowded says what has no room for the expected keys, or "".
func (p *Policy) crowded(e Expect) string {
	if e.Keys <= 0 {
		return ""
	}
	var what []string
	need := float64(e.Keys)*float64(len(p.Rules))*zoneBucket + zoneFixed
	if zone := float64(e.Zone); need > zone {
		what = append(what, fmt.Sprintf("the nginx edge's zone has %.0f MB and needs %.0f: lua_shared_dict sluice_buckets %.0fm in nginx/conf.d/20-lua.conf",
			math.Floor(zone/(1<<20)), math.Ceil(need/(1<<20)), math.Ceil(need/(1<<20))))
	}
	if n := e.Keys * len(p.Rules); n > e.Buckets {
		what = append(what, fmt.Sprintf("the Go gateway has room for %d buckets and needs %d: run more than one, or have fewer rules", e.Buckets, n))
	}
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprintf("with %d keys at one time and %d rules, new clients find no room and are answered as on_error says: %s", e.Keys, len(p.Rules), strings.Join(what, "; "))
}

// Memory of a zone of nginx's (lua/edge/sluice/limit/buckets.lua). A test counts the buckets of a zone.
const (
	zoneBucket = 32 / 0.7 // bytes: with seven of ten places taken, the first new client may find none
	zoneFixed  = 32 << 10 // what nginx and the lock need
)
