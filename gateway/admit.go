package gateway

import (
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// admit asks the rules that cover a request. It returns how long the request is to be held back, or false when it has been answered.
//
// The order is by cost. The per-IP rules come before any signature is checked, so a flood of made-up tokens is turned away cheaply; the per-token
// rules need the verified subject, unless it is remembered. Then all rules take the request in one step, or none does. A request with a bad token has used
// up its address's share all the same.
func (g *Gateway) admit(ctx *fasthttp.RequestCtx, s *snapshot, x *exchange) (wait time.Duration, ok bool) {
	method := ctx.Request.Header.Method()
	x.gather(s.ip, method, limit.Address(x.client))
	byIP := len(x.rules)
	x.gather(s.token, method, limit.Key{})
	if len(x.rules) == 0 {
		return 0, true
	}
	now := g.instant()
	if len(x.rules) > byIP {
		var err error
		buyer := g.verifier.recall(x.headers.raw())
		if buyer == nil {
			if i := g.table.Peek(now, x.asks[:byIP], x.verdicts[:byIP]); i >= 0 {
				g.refuse(ctx, x, i)
				return 0, false
			}
			buyer, err = g.verifier.verify(x.headers.raw())
		}
		switch {
		case err == nil:
			for i := byIP; i < len(x.asks); i++ {
				x.asks[i].Key = buyer.key
			}
			x.buyer = buyer.subject
		case enforced(x.rules[byIP:]):
			if i := g.table.Take(now, x.asks[:byIP], x.verdicts[:byIP]); i >= 0 {
				g.refuse(ctx, x, i)
			} else {
				x.note("unauthorized", nil, 0)
				x.reason = err.Error()
				g.metrics.unauthorized.Inc()
				g.answerUnauthorized(ctx)
			}
			return 0, false
		default: // a shadow asks nobody for a token
			x.cut(byIP)
		}
	}
	if i := g.table.Take(now, x.asks, x.verdicts); i >= 0 {
		if i < byIP { // whose token it was did not matter
			x.buyer = ""
		}
		g.refuse(ctx, x, i)
		return 0, false
	}
	return g.tell(x), true
}

// over answers a client that is over a limit, and says whether it did. It is for a client with too many requests under way: the limit is what he is told
// of, as nginx does it. No signature is checked for him; a buyer is known whose token is remembered.
func (g *Gateway) over(ctx *fasthttp.RequestCtx, s *snapshot, x *exchange) bool {
	method := ctx.Request.Header.Method()
	x.gather(s.ip, method, x.key)
	byIP := len(x.rules)
	x.gather(s.token, method, limit.Key{})
	if buyer := g.verifier.recall(x.headers.raw()); buyer != nil && len(x.rules) > byIP {
		for i := byIP; i < len(x.asks); i++ {
			x.asks[i].Key = buyer.key
		}
		x.buyer = buyer.subject
	} else {
		x.cut(byIP)
	}
	i := g.table.Peek(g.instant(), x.asks, x.verdicts)
	if i < byIP { // whose token it was did not matter
		x.buyer = ""
	}
	if i < 0 {
		return false
	}
	g.refuse(ctx, x, i)
	return true
}

// gather adds the rules that cover the request.
func (x *exchange) gather(rules []*rule, method []byte, key limit.Key) {
	for _, r := range rules {
		if r.Match.Covers(method, x.path) {
			x.rules = append(x.rules, r)
			x.asks = append(x.asks, limit.Ask{Rule: r.limit, Key: key})
			x.verdicts = append(x.verdicts, limit.Verdict{})
		}
	}
}

func (x *exchange) cut(n int) {
	x.rules, x.asks, x.verdicts = x.rules[:n], x.asks[:n], x.verdicts[:n]
}

func enforced(rules []*rule) bool {
	for _, r := range rules {
		if r.Mode == policy.Enforce {
			return true
		}
	}
	return false
}

// refuse answers a request that the i-th rule refuses.
func (g *Gateway) refuse(ctx *fasthttp.RequestCtx, x *exchange, i int) {
	r, v := x.rules[i], x.verdicts[i]
	if v.NoRoom {
		r.noRoom.Inc()
		x.note("error", r, 0)
		x.reason = "no room for a bucket"
		g.answerUnavailable(ctx)
		return
	}
	r.denied.Inc()
	x.note("deny", r, 0)
	g.answerQuota(ctx, x, r, v)
}

// tell counts the verdicts on a request that passes, and writes down its quota for the answer.
func (g *Gateway) tell(x *exchange) (wait time.Duration) {
	least := -1
	if len(x.rules) > 0 {
		x.note("allow", nil, 0)
	}
	for i, r := range x.rules {
		v := x.verdicts[i]
		switch {
		case v.NoRoom:
			r.noRoom.Inc()
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
