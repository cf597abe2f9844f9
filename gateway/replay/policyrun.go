package replay

import (
	"cmp"
	"math/bits"
	"slices"

	"sluice/gateway"
	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// policyRun evaluates one policy with the limiter of the gateway and the time of the log.
type policyRun struct {
	rules []*rule // in the order of checkOrder
	table *limit.Table

	checks  []limit.Check
	checked []*rule

	passed, refused, noBucket, unauthorized int64
	perSecond                               perSecond
}

type rule struct {
	policy.Rule
	limit  *limit.Rule
	counts RuleCounts
}

// checkOrder compares rules by the order in which the gateway checks them: those of an edge before those of the fleet,
// and of each those with the key "ip" first.
func checkOrder(a, b policy.Rule) int {
	order := func(r policy.Rule) (n int) {
		if r.Fleet {
			n += 2
		}
		if r.Key == policy.ByToken {
			n++
		}
		return n
	}
	return cmp.Compare(order(a), order(b))
}

func newPolicyRun(p *policy.Policy, capacity int) *policyRun {
	s := &policyRun{table: limit.NewTable(capacity)}
	for _, r := range slices.SortedStableFunc(slices.Values(p.Rules), checkOrder) {
		counts := RuleCounts{Name: r.Name, Key: string(r.Key), Mode: string(r.Mode)}
		s.rules = append(s.rules, &rule{Rule: r, limit: limit.NewRule(gateway.LimitOf(r)), counts: counts})
	}
	n := len(s.rules)
	s.checks, s.checked = make([]limit.Check, n), make([]*rule, n)
	return s
}

// instant converts a time of the log to that of the limiter.
func instant(ms int64) limit.Instant { return limit.Instant(ms * 1000) }

// covers returns the rules that match a request, as a bit set of their indices. Safe for concurrent use.
func (s *policyRun) covers(method, path []byte) (set uint64) {
	for i, r := range s.rules {
		if r.Match.Covers(method, path) {
			set |= 1 << i
		}
	}
	return set
}

// judge evaluates a request that the rules in set match. ip and buyer are the keys of the client and of the buyer, if
// the log contains one. It returns the rule that refuses the request with 429, or nil.
func (s *policyRun) judge(e *entry, set uint64, ip, buyer limit.Key) *rule {
	n, needsToken := 0, false
	for rest := set; rest != 0; rest &= rest - 1 {
		r := s.rules[bits.TrailingZeros64(rest)]
		r.counts.Covered++
		key := ip.Network(r.IPv6Prefix)
		if r.Key == policy.ByToken {
			if e.buyer == "" {
				if !e.unauthorized {
					r.counts.NoBuyer++
				}
				needsToken = needsToken || r.Mode == policy.Enforce
				continue
			}
			key = buyer
		}
		s.checks[n], s.checked[n] = limit.Check{Rule: r.limit, Key: key}, r
		n++
	}
	if i := s.table.Take(instant(e.at), s.checks[:n]); i >= 0 {
		r := s.checked[i]
		if s.checks[i].Verdict.Full {
			s.noBucket++
			r.counts.NoBucket++
			return nil
		}
		s.refused++
		r.counts.Refused++
		return r
	}
	for i, r := range s.checked[:n] {
		r.count(s.checks[i].Verdict)
	}
	if e.unauthorized && needsToken {
		s.unauthorized++
	} else {
		s.passed++
	}
	return nil
}

func (r *rule) count(v limit.Verdict) {
	switch {
	case v.Full:
		r.counts.NoBucket++
	case v.Over:
		r.counts.ShadowRefused++
	default:
		r.counts.Passed++
		if v.Wait > 0 && r.Mode == policy.Enforce {
			r.counts.Delayed++
			r.counts.LongestDelay = max(r.counts.LongestDelay, v.Wait.Seconds())
		}
	}
}
