package edgetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Generate returns the trace for a seed, with this number of requests and the model's decisions. It favours hard cases:
// ties, several requests at one instant, rates with a fractional number of microseconds per request, long pauses, and
// requests that several rules cover.
func Generate(seed uint64, requests int) *Trace {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x51c3))}
	t := &Trace{Name: fmt.Sprintf("seed %d", seed), Trusted: []string{"10.0.0.0/8", "2001:db8:ffff::/48"}}
	for i := range 1 + g.IntN(5) {
		t.Rules = append(t.Rules, g.rule(i))
	}
	at := int64(1e12) + g.Int64N(1e9)
	for range requests {
		at += g.gap(t.Rules)
		t.Steps = append(t.Steps, Step{Request: g.request(at)})
	}
	if err := t.Decide(); err != nil {
		panic(err) // the generator wrote a rule that the model cannot read
	}
	return t
}

type generator struct{ *rand.Rand }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) rule(i int) Rule {
	r := Rule{
		Name:   fmt.Sprintf("r%d", i),
		Key:    pick(g, "ip", "ip", "token"),
		Delay:  g.chance(20),
		Shadow: g.chance(20),
		Burst:  pick[int64](g, 0, 0, 1, 2, 3, 5, 10, 100, 1000),
		Rate: pick(g, "1r/s", "2r/s", "10r/s", "1000r/s", "20000r/s", "1000000r/s", "1r/m", "7r/m", "90r/m",
			"1r/h", "100r/h", "0.5r/s", "0.1r/h", "1.5r/m", "333.33r/s", "12345.6r/s", "999999.999r/s"),
	}
	if g.chance(40) {
		r.Rate = fmt.Sprintf("%dr/%s", 1+g.IntN(pick(g, 10, 1000, 60000)), pick(g, "s", "m", "h"))
	}
	if g.chance(40) {
		r.Method = pick(g, "GET", "POST")
	}
	if g.chance(40) {
		r.Path = pick(g, "/", "/*", "/v1/sales", "/v1/sales/*", "/v1/sales/*/orders", "/v1/*/42/orders",
			"/V1/Sales/42/Orders")
	}
	if r.Key == "ip" {
		r.IPv6Prefix = pick(g, 0, 0, 64, 56, 48)
	}
	return r
}

// gap returns the time to the next request, mostly about the share of one request of a rule.
func (g *generator) gap(rules []Rule) int64 {
	var number float64
	var unit string
	rate := rules[g.IntN(len(rules))].Rate
	if _, err := fmt.Sscanf(rate, "%fr/%s", &number, &unit); err != nil {
		panic(err)
	}
	share := int64(map[string]float64{"s": 1e6, "m": 60e6, "h": 3600e6}[unit] / number)
	switch g.IntN(10) {
	case 0, 1, 2:
		return 0
	case 3, 4:
		return share
	case 5:
		return share + pick[int64](g, 0, 1)
	case 6, 7:
		return g.Int64N(3*share + 2)
	case 8:
		return g.Int64N(share/10 + 2)
	default:
		return g.Int64N(pick[int64](g, 10, 1000, 1e6, 40*share+1, 100e6))
	}
}

func (g *generator) request(at int64) Request {
	r := Request{
		At:      at,
		Method:  pick(g, "GET", "POST", "POST", "HEAD"),
		Headers: map[string]string{},
		Path: pick(g, "/", "/a", "/v1/sales", "/v1/sales/", "/v1/sales/42", "/v1/sales/42/orders",
			"/v1/sales/42/orders", "/v1/sales/7/orders/", "/V1/SALES/42/orders"),
	}
	clients := []string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8:1:2::1", "2001:db8:1:2::ffff", "2001:db8:1:3::1",
		"2001:db8:1:103::1", "2001:db8:2:2::1"}
	r.Client = pick(g, clients...)
	r.Peer = r.Client
	switch {
	case g.chance(25): // through trusted proxies
		r.Peer = pick(g, "10.1.2.3", "2001:db8:ffff::1")
		r.Headers["X-Forwarded-For"] = strings.Repeat("203.0.113.9, ", g.IntN(2)) + r.Client + strings.Repeat(", 10.9.9.9",
			g.IntN(2))
	case g.chance(20): // a client with a forged address
		r.Headers["X-Forwarded-For"] = "203.0.113.7"
	}
	name, scheme := "Authorization", "Bearer "
	if g.chance(25) {
		name, scheme = "token", ""
	}
	switch {
	case g.chance(70):
		r.Buyer = pick(g, "ann", "ann", "bob", "a buyer with a long name that fills more than a word of memory")
		r.Headers[name] = scheme + "{token:" + r.Buyer + "}"
	case g.chance(50):
		r.Headers[name] = scheme + pick(g, "nonsense", "a.b.c", "")
	}
	return r
}
