package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/internal/fleetlimit"
	"sluice/internal/problem"
)

// snapshot is a policy prepared for use. It is immutable: a changed policy becomes a new snapshot.
type snapshot struct {
	trusted       []netip.Prefix
	cacheRefusals bool
	ip            []*rule // by client address
	token         []*rule // by buyer

	fleetIP, fleetToken []*rule // rules of the fleet, which are not in ip and token
}

type rule struct {
	policy.Rule
	limit *limit.Rule      // nil if it has the scope of the fleet
	fleet *fleetlimit.Rule // nil if not

	policyField string // member of RateLimit-Policy
	refusal     []byte // body of a 429

	allowed, denied, shadow, failed prometheus.Counter
}

// newSnapshot prepares a policy. Rules that count the same requests at the same rate as a rule of old keep its
// buckets. old may be nil.
func newSnapshot(p *policy.Policy, old *snapshot, m *metrics) *snapshot {
	s := &snapshot{trusted: p.TrustedProxies, cacheRefusals: !p.NoRefusalCache}
	for _, r := range p.Rules {
		prepared := newRule(r, old.find(r), m)
		switch {
		case r.Fleet && r.Key == policy.ByIP:
			s.fleetIP = append(s.fleetIP, prepared)
		case r.Fleet:
			s.fleetToken = append(s.fleetToken, prepared)
		case r.Key == policy.ByIP:
			s.ip = append(s.ip, prepared)
		default:
			s.token = append(s.token, prepared)
		}
	}
	m.setRules(p.Rules)
	return s
}

func newRule(r policy.Rule, old *rule, m *metrics) *rule {
	counter := func(verdict string) prometheus.Counter { return m.requests.WithLabelValues(r.Name, verdict) }
	prepared := &rule{Rule: r, allowed: counter("allow"), denied: counter("deny"), shadow: counter("shadow"),
		failed: counter("error")}
	switch l := LimitOf(r); {
	case r.Fleet:
		prepared.fleet = fleetlimit.NewRule(fleetID(r), l.Count, l.Period, l.Burst)
	case old != nil:
		prepared.limit = limit.Inherit(old.limit, l)
	default:
		prepared.limit = limit.NewRule(l)
	}
	prepared.policyField = policyMember(r.Name, r.Burst+1, r.Rate.PerSecond())
	prepared.refusal = refusalBody(r.Name, "right now")
	return prepared
}

// refusalBody returns the body of a 429. what ends the sentence "the policy allows no more ...".
func refusalBody(name, what string) []byte {
	d := problem.New(problem.RateLimited,
		fmt.Sprintf("Too many requests: the policy %q allows no more %s.", name, what))
	d.ViolatedPolicies = []string{name}
	return d.Body()
}

// LimitOf returns the limit of a rule of a policy.
func LimitOf(r policy.Rule) limit.Rule {
	count, period := r.Rate.Fraction()
	return limit.Rule{Count: count, Period: period, Burst: r.Burst, Delay: r.Delay, Shadow: r.Mode == policy.Shadow,
		FailOpen: r.OnError == policy.Allow}
}

// find returns the rule of s, with the scope of the edge, whose buckets r continues to use, or nil: the rule with the
// same name, key, rate, mode and IPv6 prefix. A change of the burst, for example, must not reset the buckets.
func (s *snapshot) find(r policy.Rule) *rule {
	for _, other := range s.all() {
		if other.Name == r.Name && other.Key == r.Key && other.Rate == r.Rate && other.Mode == r.Mode &&
			other.IPv6Prefix == r.IPv6Prefix {
			return other
		}
	}
	return nil
}

// all returns the rules with the scope of the edge.
func (s *snapshot) all() []*rule {
	if s == nil {
		return nil
	}
	return slices.Concat(s.ip, s.token)
}
