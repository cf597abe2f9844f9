package gateway

import (
	"errors"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// admit checks the rules that match the request. It returns how long the request must be delayed, or false if it has
// refused the request.
//
// The order follows the cost. Rules by address come before the token is verified, so that a flood of forged tokens is
// refused cheaply. Rules by buyer need the verified subject. Then the request is counted by all rules in one step, or
// by none. A request with an invalid token is counted by the rules by address.
func (g *Gateway) admit(ctx *fasthttp.RequestCtx, s *snapshot, x *exchange) (wait time.Duration, ok bool) {
	x.match(s, ctx.Request.Header.Method())
	if len(x.rules)+len(x.fleet) == 0 {
		return 0, true
	}
	var unidentified error
	if x.countsBuyers() {
		var denied int
		if denied, unidentified = g.identify(x); denied >= 0 {
			g.refuse(ctx, x, x.rules[denied], x.checks[denied].Verdict)
			return 0, false
		}
	}
	denied, refused := g.count(ctx, g.instant(), x)
	switch {
	case denied >= 0:
		g.refuse(ctx, x, x.rules[denied], x.checks[denied].Verdict)
		return 0, false
	case refused:
		return 0, false
	}
	x.acceptFleet()
	if unidentified != nil {
		x.note("unauthorized", nil, 0)
		x.reason = unidentified.Error()
		g.metrics.unauthorized.Inc()
		respondUnauthorized(ctx)
		return 0, false
	}
	return x.accept(), true
}

// identify verifies the token of the request and sets the keys of the rules by buyer. It returns the rule by address
// that denies the request before its token is verified, or -1. Without a valid token it removes the rules by buyer, and
// returns an error if one of them is enforced.
func (g *Gateway) identify(x *exchange) (denied int, err error) {
	raw := ascii.String(x.Headers.Token())
	buyer, cached := g.keys.Cached(raw)
	if !cached {
		if i := g.table.Peek(g.instant(), x.checks[:x.byIP]); i >= 0 {
			return i, nil
		}
		if buyer, err = g.keys.Verify(raw); raw == "" {
			err = errNoToken
		}
	}
	if err == nil {
		x.setBuyer(buyer, g.buyers.Text(buyer))
		return -1, nil
	}
	required := slices.ContainsFunc(x.rules[x.byIP:], (*rule).isEnforced) ||
		slices.ContainsFunc(x.fleet[x.fleetByIP:], func(c fleetCheck) bool { return c.rule.isEnforced() })
	x.dropRulesByBuyer()
	if !required {
		return -1, nil
	}
	return -1, err
}

// count counts the request by all its rules, or by none. It returns the rule of the edge that refuses it, or -1. A rule
// of the fleet may call Redis, so these rules decide only about requests that the rules of the edge admit. refused
// reports whether a rule of the fleet has refused and answered the request.
func (g *Gateway) count(ctx *fasthttp.RequestCtx, now limit.Instant, x *exchange) (i int, refused bool) {
	if len(x.fleet) == 0 {
		return g.table.Take(now, x.checks), false
	}
	if i := g.table.Peek(now, x.checks); i >= 0 {
		return i, false
	}
	if !g.admitFleet(ctx, x) {
		return -1, true
	}
	i = g.table.Take(g.instant(), x.checks)
	if i >= 0 {
		g.refundFleet(x.fleet)
	}
	return i, false
}

// match finds the rules that match the request, and sets the keys of those by address.
func (x *exchange) match(s *snapshot, method []byte) {
	client := limit.Address(x.Client)
	x.matchEdge(s.ip, method, client)
	x.byIP = len(x.rules)
	x.matchEdge(s.token, method, limit.Key{})
	x.matchFleet(s.fleetIP, method)
	x.fleetByIP = len(x.fleet)
	x.matchFleet(s.fleetToken, method)
}

func (x *exchange) matchEdge(rules []*rule, method []byte, key limit.Key) {
	for _, r := range rules {
		if r.Match.Covers(method, x.path) {
			x.rules = append(x.rules, r)
			x.checks = append(x.checks, limit.Check{Rule: r.limit, Key: key.Network(r.IPv6Prefix)})
		}
	}
}

var errNoToken = errors.New("no token")

// countsBuyers reports whether a rule by buyer matches the request.
func (x *exchange) countsBuyers() bool { return len(x.rules) > x.byIP || len(x.fleet) > x.fleetByIP }

// setBuyer sets the buyer, and the keys of the rules by buyer.
func (x *exchange) setBuyer(buyer string, key limit.Key) {
	for i := x.byIP; i < len(x.checks); i++ {
		x.checks[i].Key = key
	}
	for i := x.fleetByIP; i < len(x.fleet); i++ {
		x.fleet[i].key = buyer
	}
	x.buyer = buyer
}

func (x *exchange) dropRulesByBuyer() {
	x.rules, x.checks, x.fleet = x.rules[:x.byIP], x.checks[:x.byIP], x.fleet[:x.fleetByIP]
}

func (r *rule) isEnforced() bool { return r.Mode == policy.Enforce }

// refuse answers a request that a rule refuses.
func (g *Gateway) refuse(ctx *fasthttp.RequestCtx, x *exchange, r *rule, v limit.Verdict) {
	if r.Key == policy.ByIP { // the refusal does not depend on the buyer
		x.buyer = ""
	}
	if v.Full {
		r.failed.Inc()
		x.note("error", r, 0)
		x.reason = "bucket table full"
		if r.fleet != nil {
			x.reason = "no lease of the fleet's limit"
		}
		respondUnavailable(ctx, x)
		return
	}
	r.denied.Inc()
	x.note("deny", r, 0)
	x.scratch = appendQuota(x.scratch[:0], r.Name, 0, v.Wait)
	ctx.Response.Header.SetBytesV("RateLimit", x.scratch)
	ctx.Response.Header.Set("RateLimit-Policy", r.policyField)
	g.respondTooMany(ctx, x, v.Wait, r.refusal)
}

// accept counts the verdicts on an admitted request and writes its quota. It returns the delay.
func (x *exchange) accept() (wait time.Duration) {
	least := -1
	if len(x.rules)+len(x.fleet) > 0 {
		x.note("allow", nil, 0)
	}
	for i, r := range x.rules {
		v := x.checks[i].Verdict
		switch {
		case v.Full:
			r.failed.Inc()
		case v.Over:
			r.shadow.Inc()
			x.shadow = r.Name
		default:
			r.allowed.Inc()
			if r.Mode == policy.Shadow {
				continue
			}
			x.quotaPolicy = appendMember(x.quotaPolicy, r.policyField)
			x.quota = appendQuota(x.quota, r.Name, v.Remaining, v.Next)
			if least < 0 || v.Remaining < least {
				least = v.Remaining
				x.note("allow", r, v.Remaining)
			}
			wait = max(wait, v.Wait)
		}
	}
	return wait
}
