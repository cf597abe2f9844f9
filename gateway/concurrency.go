package gateway

import (
	"sync"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// concurrencyLimiter limits the requests in progress of each client, like limit_conn of nginx. A rate limit does not
// restrict requests that take long, such as waiting for an order or following a sale.
type concurrencyLimiter struct {
	limit  int32
	shards [concurrencyShards]concurrencyShard
}

type concurrencyShard struct {
	mu         sync.Mutex
	inProgress map[limit.Key]int32
}

const concurrencyShards = 64 // a power of two

func newConcurrencyLimiter(limitPerClient int) *concurrencyLimiter {
	c := &concurrencyLimiter{limit: int32(limitPerClient)} //nolint:gosec // at most 65535
	for i := range c.shards {
		c.shards[i].inProgress = map[limit.Key]int32{}
	}
	return c
}

// enter counts a request, unless the client has reached the limit. If it returns true, leave must follow.
func (c *concurrencyLimiter) enter(key limit.Key) bool {
	s := &c.shards[key.Spread()&(concurrencyShards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.inProgress[key]
	if n >= c.limit {
		return false
	}
	s.inProgress[key] = n + 1
	return true
}

func (c *concurrencyLimiter) leave(key limit.Key) {
	s := &c.shards[key.Spread()&(concurrencyShards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.inProgress[key]; n > 1 {
		s.inProgress[key] = n - 1
	} else {
		delete(s.inProgress, key)
	}
}

// concurrencyRule stands for the limiter in responses, metrics and the access log.
var concurrencyRule = &rule{
	Rule:    policy.Rule{Name: policy.ConcurrencyRule},
	refusal: refusalBody(policy.ConcurrencyRule, "concurrent requests"),
}

// refuseConcurrent answers a request beyond the concurrency limit. If a rate limit refuses it as well, that rule is
// reported, as at the nginx edge.
func (g *Gateway) refuseConcurrent(ctx *fasthttp.RequestCtx, s *snapshot, x *exchange) {
	if g.overRateLimit(ctx, s, x) {
		return
	}
	g.metrics.concurrencyDenied.Inc()
	x.note("deny", concurrencyRule, 0)
	// There is no RateLimit header: the time when the client may send its next request is unknown.
	g.respondTooMany(ctx, x, 0, concurrencyRule.refusal)
}

// overRateLimit refuses the request if a rate limit is exceeded, and reports whether it did. It does not verify the
// token: the limits by buyer apply only if the token is cached.
func (g *Gateway) overRateLimit(ctx *fasthttp.RequestCtx, s *snapshot, x *exchange) bool {
	x.match(s, ctx.Request.Header.Method())
	if buyer, ok := g.keys.Cached(ascii.String(x.Headers.Token())); ok && x.countsBuyers() {
		x.setBuyer(buyer, g.buyers.Text(buyer))
	} else {
		x.dropRulesByBuyer()
	}
	i := g.table.Peek(g.instant(), x.checks)
	if i < 0 {
		x.buyer = ""
		return false
	}
	g.refuse(ctx, x, x.rules[i], x.checks[i].Verdict)
	return true
}
