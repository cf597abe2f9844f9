package gateway

import (
	"net/netip"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/internal/problem"
)

// snapshot is a policy made ready for use. It never changes: a new policy is a new snapshot.
type snapshot struct {
	trusted []netip.Prefix
	repeats bool // refusals of whole sales are answered from memory
	ip      []*rule
	token   []*rule
}

type rule struct {
	policy.Rule
	limit *limit.Rule

	policyField string // its member of the RateLimit-Policy header
	refusal     []byte // the body of its 429

	allowed, denied, shadow, noRoom prometheus.Counter
}

// newSnapshot makes a policy ready. Rules that count as they did in old keep their buckets.
func newSnapshot(p *policy.Policy, old *snapshot, m *metrics) *snapshot {
	s := &snapshot{trusted: p.TrustedProxies, repeats: !p.KeepAsking}
	for _, r := range p.Rules {
		made := newRule(r, old.find(r), m)
		if r.Key == policy.ByIP {
			s.ip = append(s.ip, made)
		} else {
			s.token = append(s.token, made)
		}
	}
	m.inForce(p.Rules)
	return s
}

func newRule(r policy.Rule, before *rule, m *metrics) *rule {
	made := &rule{Rule: r, allowed: m.requests.WithLabelValues(r.Name, "allow"), denied: m.requests.WithLabelValues(r.Name, "deny"),
		shadow: m.requests.WithLabelValues(r.Name, "shadow"), noRoom: m.requests.WithLabelValues(r.Name, "error")}
	count, period := r.Rate.Fraction()
	bucket := limit.Rule{Count: count, Period: period, Burst: r.Burst, Delay: r.Delay, Shadow: r.Mode == policy.Shadow, Lenient: r.OnError == policy.Allow}
	if before != nil {
		made.limit = limit.Heir(before.limit, bucket)
	} else {
		made.limit = limit.NewRule(bucket)
	}
	made.policyField = policyMember(r.Name, r.Burst+1, r.Rate.PerSecond())
	d := problem.New(problem.RateLimited, "Too many requests: the policy "+strconv.Quote(r.Name)+" allows no more right now.")
	d.ViolatedPolicies = []string{r.Name}
	made.refusal = d.Body()
	return made
}

// find is the rule of s whose buckets r goes on with, or nil: the one of its name that counts the same at the same rate. A new burst, or anything
// else that is new, is no new start, or whoever had used up his share would have it again with every change of the policy.
func (s *snapshot) find(r policy.Rule) *rule {
	for _, had := range s.all() {
		if had.Name == r.Name && had.Key == r.Key && had.Rate == r.Rate && had.Mode == r.Mode {
			return had
		}
	}
	return nil
}

func (s *snapshot) all() []*rule {
	if s == nil {
		return nil
	}
	return append(append([]*rule(nil), s.ip...), s.token...)
}

// gone is what s has that next has not.
func (s *snapshot) gone(next *snapshot) []*rule {
	var gone []*rule
	for _, r := range s.all() {
		if next.find(r.Rule) == nil {
			gone = append(gone, r)
		}
	}
	return gone
}
