package gateway

import (
	"encoding/hex"
	"net/netip"
	"strconv"

	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/internal/fleetlimit"
)

// fleetCheck is a rule of the fleet that matches a request, and its decision.
type fleetCheck struct {
	rule     *rule
	key      string
	decision fleetlimit.Decision
}

// fleetID returns the name of a rule in the Redis server of the fleet. Rules with different names count separately. The
// nginx edge has the same names.
func fleetID(r policy.Rule) string {
	id := r.Name
	if r.Mode == policy.Shadow {
		id = "shadow:" + id
	}
	if r.IPv6Prefix != 0 && r.IPv6Prefix != policy.DefaultIPv6Prefix {
		id += ":" + strconv.Itoa(r.IPv6Prefix)
	}
	return id
}

// fleetAddress returns the key of a client address: four bytes of IPv4, or the network of IPv6, in hex.
func fleetAddress(a netip.Addr, ipv6Prefix int) string {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		return hex.EncodeToString(b[:])
	}
	b := a.As16()
	return hex.EncodeToString(b[:ipv6Prefix/8])
}

func (x *exchange) matchFleet(rules []*rule, method []byte) {
	for _, r := range rules {
		if r.Match.Covers(method, x.path) {
			c := fleetCheck{rule: r}
			if r.Key == policy.ByIP {
				c.key = fleetAddress(x.Client, r.IPv6Prefix)
			}
			x.fleet = append(x.fleet, c)
		}
	}
}

// admitFleet checks the rules of the fleet. Call it only if no rule of the edge refuses the request. It returns false
// if it has refused and answered the request.
func (g *Gateway) admitFleet(ctx *fasthttp.RequestCtx, x *exchange) bool {
	for i := range x.fleet {
		c := &x.fleet[i]
		c.decision = g.fleet.Take(c.rule.fleet, c.key)
		if c.rule.Mode == policy.Shadow {
			continue
		}
		switch c.decision.Outcome {
		case fleetlimit.Refused:
			g.refundFleet(x.fleet[:i])
			g.refuse(ctx, x, c.rule, limit.Verdict{Over: true, Wait: c.decision.Wait})
			return false
		case fleetlimit.Unavailable:
			if c.rule.OnError == policy.Deny {
				g.refundFleet(x.fleet[:i])
				g.refuse(ctx, x, c.rule, limit.Verdict{Full: true})
				return false
			}
		}
	}
	return true
}

// refundFleet returns the slots of a request that is refused.
func (g *Gateway) refundFleet(checks []fleetCheck) {
	for _, c := range checks {
		if c.decision.Outcome == fleetlimit.Admitted {
			g.fleet.Refund(c.decision)
		}
	}
}

// acceptFleet counts the decisions on an admitted request. It reports no quota to the client, because an edge does not
// know how many slots are left for the fleet.
func (x *exchange) acceptFleet() {
	for _, c := range x.fleet {
		switch c.decision.Outcome {
		case fleetlimit.Unavailable:
			c.rule.failed.Inc()
		case fleetlimit.Refused:
			c.rule.shadow.Inc()
			x.shadow = c.rule.Name
		default:
			c.rule.allowed.Inc()
		}
	}
}
