package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sizing is the expected load, and the capacity of the edges.
type Sizing struct {
	Keys    int   // clients, and as many buyers, within the time in which a bucket empties; 0 disables the check
	Zone    int64 // size of the zone sluice_buckets of the nginx edge, in bytes
	Buckets int   // capacity of the Go gateway
}

// Inspect reads the policy file at path, which may be a pipe. It returns warnings about rules that are valid but
// probably not intended. Its error is Findings.
func Inspect(path string, e Sizing) (*Policy, Findings, error) {
	source, err := load(path)
	if err != nil {
		return nil, nil, err
	}
	return InspectSource(path, source, e)
}

// InspectSource is Inspect of the text of a policy. name is its file name in findings.
func InspectSource(name string, source []byte, e Sizing) (*Policy, Findings, error) {
	p, w, err := parseSource(name, source)
	if err != nil {
		return nil, nil, err
	}
	return p, p.warnings(name, w, e), nil
}

func (p *Policy) warnings(file string, w sourceLines, e Sizing) (warnings Findings) {
	warn := func(line int, format string, args ...any) {
		warnings = append(warnings, Finding{File: file, Line: line, Message: fmt.Sprintf(format, args...)})
	}
	for _, proxy := range p.TrustedProxies {
		if proxy.Bits() == 0 {
			warn(w.proxies,
				"trusted_proxies contains %s, so that every client can claim any address: list only your proxies", proxy)
		}
	}
	for i, r := range p.Rules {
		if what := r.suspicious(); what != "" {
			warn(w.rule[i], "rule %s %s", quote(r.Name), what)
		}
		if what := p.unreachable(i); what != "" {
			warn(w.rule[i], "rule %s %s", quote(r.Name), what)
		}
		if r.Key == ByToken && r.Mode == Enforce && !p.hasAddressRule(r) {
			warn(w.rule[i], `rule %s has no rule with key = "ip" before it, so that each forged token costs a signature: `+
				`add one that covers the same requests`, quote(r.Name))
		}
	}
	if what := p.shortage(e); what != "" {
		warn(w.rules, "%s", what)
	}
	slices.SortStableFunc(warnings, func(a, b Finding) int { return a.Line - b.Line })
	return warnings
}

// tick is the timing accuracy of clients, networks and event loops in seconds. Evenly sent requests arrive in bunches
// of this duration.
const tick = 0.001

// suspicious returns a warning about the rule alone, or "".
func (r Rule) suspicious() string {
	if least := math.Ceil(r.Rate.PerSecond()*tick) - 1; float64(r.Burst) < least {
		return fmt.Sprintf("has burst %d and admits %.0f requests a millisecond on average: requests arrive in bunches "+
			"of that duration, and even those within the rate are refused; use a burst of %.0f or more",
			r.Burst, r.Rate.PerSecond()*tick, least)
	}
	if r.Delay && r.Burst == 0 {
		return "has delay = true without a burst, which has no effect: add a burst or remove delay"
	}
	if path := r.Match.Path; ReservedPath([]byte(path)) != NotReserved {
		return fmt.Sprintf("can never match, because %s is not forwarded to backends: remove the rule", path)
	}
	return ""
}

// unreachable returns a warning if rule i can never refuse a request, or "".
func (p *Policy) unreachable(i int) string {
	r := p.Rules[i]
	for j, other := range p.Rules {
		if j == i || other.Key != r.Key || other.Mode != Enforce || !other.Match.includes(r.Match) {
			continue
		}
		// Rules of different scope count different requests. A rule with a longer IPv6 prefix counts fewer clients
		// together, so it may admit requests that r refuses.
		if other.Fleet != r.Fleet || other.IPv6Prefix > r.IPv6Prefix {
			continue
		}
		same := other.IPv6Prefix == r.IPv6Prefix && other.Rate.PerSecond() == r.Rate.PerSecond() &&
			other.Burst == r.Burst && other.Match == r.Match && other.Delay == r.Delay && r.Mode == Enforce
		switch {
		case same && j < i:
			return fmt.Sprintf("is the same as rule %s: remove one of them", quote(other.Name))
		case same:
		case other.Rate.PerSecond() <= r.Rate.PerSecond() && other.Burst <= r.Burst && (other.Delay || !r.Delay):
			return fmt.Sprintf("never refuses a request: rule %s covers all of its requests and is as strict; remove it, "+
				"or make it stricter", quote(other.Name))
		}
	}
	return ""
}

// hasAddressRule reports whether an enforced rule by address covers all requests of r. Rules of the fleet decide after
// the token is verified.
func (p *Policy) hasAddressRule(r Rule) bool {
	return slices.ContainsFunc(p.Rules,
		func(o Rule) bool { return o.Key == ByIP && o.Mode == Enforce && !o.Fleet && o.Match.includes(r.Match) })
}

// includes reports whether m matches every request that other matches.
func (m Match) includes(other Match) bool {
	if m.Method != "" && m.Method != other.Method {
		return false
	}
	if m.Path == "" || other.Path == "" {
		return m.Path == ""
	}
	mine, theirs := strings.Split(m.Path, "/"), strings.Split(other.Path, "/")
	return slices.EqualFunc(mine, theirs,
		func(a, b string) bool { return a == "*" && b != "" || b != "*" && strings.EqualFold(a, b) })
}

// shortage returns a warning if an edge has too little memory for the expected keys, or "".
func (p *Policy) shortage(e Sizing) string {
	if e.Keys <= 0 {
		return ""
	}
	rules := 0 // with buckets; those of the fleet have leases instead
	for _, r := range p.Rules {
		if !r.Fleet {
			rules++
		}
	}
	var what []string
	need := float64(e.Keys)*float64(rules)*zoneBucket + zoneFixed
	if zone := float64(e.Zone); need > zone {
		what = append(what, fmt.Sprintf("the zone of the nginx edge has %.0f MB and needs %.0f: set lua_shared_dict "+
			"sluice_buckets %.0fm in nginx/conf.d/20-lua.conf",
			math.Floor(zone/(1<<20)), math.Ceil(need/(1<<20)), math.Ceil(need/(1<<20))))
	}
	if n := e.Keys * rules; n > e.Buckets {
		what = append(what, fmt.Sprintf("the Go gateway has %d buckets and needs %d: run several gateways, or use fewer "+
			"rules", e.Buckets, n))
	}
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"with %d concurrent keys and %d rules, an edge has no bucket for new clients and on_error applies "+
			"(ignore an edge that you do not run): %s", e.Keys, rules, strings.Join(what, "; "))
}

// Memory of a zone of the nginx edge (lua/edge/sluice/accel/buckets.lua). A test counts the buckets of a zone.
const (
	zoneBucket = 32 / 0.7 // bytes: at 70% use, the first new clients may find no bucket
	zoneFixed  = 32 << 10 // bytes for nginx and the lock
)
