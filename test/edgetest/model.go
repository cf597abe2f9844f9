package edgetest

import (
	"cmp"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
)

// Decide sets the decisions of the model for every request of the trace.
func (t *Trace) Decide() error {
	m, err := newModel(t.Rules)
	if err != nil {
		return err
	}
	for i := range t.Steps {
		t.Steps[i].Want = m.decide(&t.Steps[i].Request)
	}
	return nil
}

type model struct {
	rules   []modelRule // those with the key "ip" first
	buckets map[string]*Bucket
	now     int64
}

type modelRule struct {
	Rule
	rate *big.Rat // requests per us
}

func newModel(rules []Rule) (*model, error) {
	m := &model{buckets: map[string]*Bucket{}}
	for _, key := range []string{"ip", "token"} {
		for _, r := range rules {
			if r.Key != key {
				continue
			}
			number, unit, _ := strings.Cut(r.Rate, "r/")
			rate, ok := new(big.Rat).SetString(number)
			us := map[string]int64{"s": 1e6, "m": 60e6, "h": 3600e6}[unit]
			if !ok || us == 0 || rate.Sign() <= 0 {
				return nil, fmt.Errorf("edgetest: rule %s has the rate %q", r.Name, r.Rate)
			}
			m.rules = append(m.rules, modelRule{r, rate.Quo(rate, new(big.Rat).SetInt64(us))})
		}
	}
	return m, nil
}

// opinion is the verdict of one rule on one request.
type opinion struct {
	rule   *modelRule
	bucket *Bucket
	e      *big.Rat
	passes bool
}

func (m *model) decide(r *Request) Decision {
	m.now = max(m.now, r.At)
	var byIP, byToken []*modelRule
	enforcedToken := false
	for i := range m.rules {
		rule := &m.rules[i]
		switch {
		case !rule.covers(r):
		case rule.Key == "ip":
			byIP = append(byIP, rule)
		default:
			byToken = append(byToken, rule)
			enforcedToken = enforcedToken || !rule.Shadow
		}
	}
	if len(byIP)+len(byToken) == 0 {
		return Decision{}
	}
	rules := append(byIP[:len(byIP):len(byIP)], byToken...)
	unauthorized := false
	if len(byToken) > 0 {
		// A flood of forged tokens is refused by its address before any signature is verified.
		if _, refusal := m.judge(byIP, r); refusal != nil {
			return refused(refusal)
		}
		if r.Buyer == "" {
			if rules, unauthorized = byIP, enforcedToken; len(rules) == 0 && !unauthorized {
				return Decision{}
			}
		}
	}
	opinions, refusal := m.judge(rules, r)
	if refusal != nil {
		return refused(refusal)
	}
	for _, o := range opinions {
		if o.passes {
			o.bucket.Store(o.e, m.now)
		}
	}
	if unauthorized {
		return Decision{Verdict: "unauthorized"}
	}
	return allowed(opinions)
}

// judge evaluates the rules in order; refusal is the first enforced one that rejects.
func (m *model) judge(rules []*modelRule, r *Request) (opinions []opinion, refusal *opinion) {
	for _, rule := range rules {
		name := rule.Name + " " + rule.keyOf(r)
		b := m.buckets[name]
		if b == nil {
			b = &Bucket{}
			m.buckets[name] = b
		}
		o := opinion{rule: rule, bucket: b}
		o.e, o.passes = b.Excess(rule.rate, rule.Burst, m.now)
		if !o.passes && !rule.Shadow {
			return nil, &o
		}
		opinions = append(opinions, o)
	}
	return opinions, nil
}

func refused(o *opinion) Decision {
	wait := seconds(Wait(o.e, o.rule.rate, o.rule.Burst))
	return Decision{
		Verdict: "deny",
		Rule:    o.rule.Name,
		Retry:   wait,
		Limit:   fmt.Sprintf(`"%s";r=0;t=%d`, o.rule.Name, wait),
	}
}

func allowed(opinions []opinion) Decision {
	d := Decision{Verdict: "allow"}
	var limits []string
	for _, o := range opinions {
		if o.rule.Shadow {
			if !o.passes {
				d.Shadow = o.rule.Name
			}
			continue
		}
		left := Remaining(o.e, o.rule.Burst)
		reset := seconds(Next(o.e, o.rule.rate, o.rule.Burst))
		limits = append(limits, fmt.Sprintf(`"%s";r=%d;t=%d`, o.rule.Name, left, reset))
		if d.Rule == "" || left < d.Remaining {
			d.Rule, d.Remaining = o.rule.Name, left
		}
		if o.rule.Delay {
			d.Delay = max(d.Delay, Ceil(Delay(o.e, o.rule.rate)))
		}
	}
	d.Limit = strings.Join(limits, ", ")
	return d
}

// seconds returns a time in us as whole seconds, rounded up, at least 1.
func seconds(us *big.Rat) int64 {
	return max(1, Ceil(new(big.Rat).Quo(us, big.NewRat(1e6, 1))))
}

func (r *modelRule) covers(q *Request) bool {
	if r.Method != "" && r.Method != q.Method {
		return false
	}
	if r.Path == "" {
		return true
	}
	pattern, path := segments(r.Path), segments(q.Path)
	if len(pattern) != len(path) {
		return false
	}
	for i, p := range pattern {
		if p == "*" && path[i] != "" {
			continue
		}
		if !strings.EqualFold(p, path[i]) {
			return false
		}
	}
	return true
}

func segments(path string) []string {
	if path != "/" {
		path = strings.TrimSuffix(path, "/")
	}
	return strings.Split(path, "/")[1:]
}

// keyOf returns the key of the request's bucket: the buyer, or the client's address, of IPv6 its network.
func (r *modelRule) keyOf(q *Request) string {
	if r.Key == "token" {
		return "buyer " + q.Buyer
	}
	client := netip.MustParseAddr(q.Client).Unmap()
	if client.Is4() {
		return client.String()
	}
	network, err := client.Prefix(cmp.Or(r.IPv6Prefix, 64))
	if err != nil {
		panic(err) // an IPv6 address has such a network
	}
	return network.String()
}
