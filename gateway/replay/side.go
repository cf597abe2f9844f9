package replay

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// side is one policy at work: the gateway's own limiter, with the log's time for its clock.
type side struct {
	rules []*rule // those with the key "ip" first, as the gateway asks them
	ips   int
	table *limit.Table

	asks     []limit.Check
	verdicts []limit.Verdict
	asked    []*rule

	passed, refused, noRoom, unauthorized int64
	perSecond                             perSecond
}

type rule struct {
	policy.Rule
	limit *limit.Rule
	count RuleCounts
}

// outcome is what becomes of one request.
type outcome struct {
	verdict
	rule *rule // that refused it
}

type verdict uint8

const (
	passed  verdict = iota
	refused         // 429
	noRoom          // 503: there is no room for a bucket
	badToken
)

func newSide(p *policy.Policy, capacity int) *side {
	s := &side{table: limit.NewTable(capacity)}
	for _, key := range []policy.Key{policy.ByIP, policy.ByToken} {
		for _, r := range p.Rules {
			if r.Key == key {
				s.rules = append(s.rules, &rule{Rule: r, limit: limiterOf(r), count: RuleCounts{Name: r.Name, Key: string(r.Key), Mode: string(r.Mode)}})
			}
		}
		if key == policy.ByIP {
			s.ips = len(s.rules)
		}
	}
	n := len(s.rules)
	s.asks, s.verdicts, s.asked = make([]limit.Check, n), make([]limit.Verdict, n), make([]*rule, n)
	return s
}

func limiterOf(r policy.Rule) *limit.Rule {
	count, period := r.Rate.Fraction()
	return limit.NewRule(limit.Rule{Count: count, Period: period, Burst: r.Burst, Delay: r.Delay,
		Shadow: r.Mode == policy.Shadow, FailOpen: r.OnError == policy.Allow})
}

// instant is a time of the log as the limiter counts it.
func instant(ms int64) limit.Instant { return limit.Instant(ms * 1000) }

// drop makes room of the buckets that have refilled.
func (s *side) drop(ms int64) {
	if s != nil {
		s.table.Evict(instant(ms))
	}
}

// covers is the rules that look at a request, as a set of their places. (A policy has 64 rules at most.) Safe for concurrent use.
func (s *side) covers(method, path []byte) (set uint64) {
	if s == nil {
		return 0
	}
	for i, r := range s.rules {
		if r.Match.Covers(method, path) {
			set |= 1 << i
		}
	}
	return set
}

// judge says what the policy makes of a request that the rules in set look at. ip and buyer are the keys of its client and of its buyer, if the log
// names one.
func (s *side) judge(e *entry, set uint64, ip, buyer limit.Key) outcome {
	n, tokenless := 0, false
	for rest := set; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		r := s.rules[i]
		r.count.Covered++
		key := ip
		if i >= s.ips {
			if e.buyer == "" {
				if !e.unauthorized {
					r.count.NoBuyer++
				}
				tokenless = tokenless || r.Mode == policy.Enforce
				continue
			}
			key = buyer
		}
		s.asks[n], s.asked[n] = limit.Check{Rule: r.limit, Key: key}, r
		n++
	}
	if i := s.table.Take(instant(e.at), s.asks[:n], s.verdicts[:n]); i >= 0 {
		r := s.asked[i]
		if s.verdicts[i].Full {
			s.noRoom++
			r.count.NoRoom++
			return outcome{noRoom, r}
		}
		s.refused++
		r.count.Refused++
		return outcome{refused, r}
	}
	for i, r := range s.asked[:n] {
		r.tell(s.verdicts[i])
	}
	if e.unauthorized && tokenless {
		s.unauthorized++
		return outcome{verdict: badToken}
	}
	s.passed++
	return outcome{}
}

func (r *rule) tell(v limit.Verdict) {
	switch {
	case v.Full:
		r.count.NoRoom++
	case v.Over:
		r.count.ShadowRefused++
	default:
		r.count.Passed++
		if v.Wait > 0 && r.Mode == policy.Enforce {
			r.count.Delayed++
			r.count.LongestDelay = max(r.count.LongestDelay, v.Wait.Seconds())
		}
	}
}

// perSecond counts what happens in each second that has anything, and then how many seconds had so much: seconds are many, and different counts
// few. Its instants must not go back by more than one second.
type perSecond struct {
	second, count int64
	seconds       map[int64]int64 // count -> how many seconds had it
}

func (p *perSecond) add(ms, n int64) {
	if second := ms / 1000; second != p.second {
		p.end()
		p.second = second
	}
	p.count += n
}

func (p *perSecond) end() {
	if p.second != 0 {
		if p.seconds == nil {
			p.seconds = map[int64]int64{}
		}
		p.seconds[p.count]++
	}
	p.count = 0
}

// percentiles are those of the seconds so far. Only after end.
func (p *perSecond) percentiles() Percentiles {
	total := int64(0)
	for _, n := range p.seconds {
		total += n
	}
	counts := slices.SortedFunc(maps.Keys(p.seconds), cmp.Compare[int64])
	at := func(share float64) int64 {
		rank := min(int64(share*float64(total)), total-1)
		for _, c := range counts {
			if rank -= p.seconds[c]; rank < 0 {
				return c
			}
		}
		return 0
	}
	return Percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}
