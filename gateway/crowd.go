package gateway

import (
	"strconv"
	"sync"

	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/internal/problem"
)

// crowd counts the requests of each client that are under way. Waiting for an order or watching a sale holds a connection for long, and no rate
// notices. It is limit_conn of the nginx edge.
type crowd struct {
	most   int32
	shards [crowdShards]crowdShard
}

type crowdShard struct {
	mu    sync.Mutex
	under map[limit.Key]int32
}

const crowdShards = 64 // a power of two

func newCrowd(most int) *crowd {
	c := &crowd{most: int32(most)} //nolint:gosec // at most 65535
	for i := range c.shards {
		c.shards[i].under = map[limit.Key]int32{}
	}
	return c
}

// enter says whether one more request of this client may be under way. If so, leave must follow.
func (c *crowd) enter(key limit.Key) bool {
	s := &c.shards[key.Spread()&(crowdShards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.under[key]
	if n >= c.most {
		return false
	}
	s.under[key] = n + 1
	return true
}

func (c *crowd) leave(key limit.Key) {
	s := &c.shards[key.Spread()&(crowdShards-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.under[key]; n > 1 {
		s.under[key] = n - 1
	} else {
		delete(s.under, key)
	}
}

// concurrency is the rule that a crowded client is told of.
var concurrency = &rule{Rule: policy.Rule{Name: "concurrency"}, refusal: func() []byte {
	d := problem.New(problem.RateLimited, `Too many requests: the policy "concurrency" allows no more at once.`)
	d.ViolatedPolicies = []string{"concurrency"}
	return d.Body()
}()}

// answerCrowded refuses one request too many of a client. It says no RateLimit: nobody knows when the next one may come.
func (g *Gateway) answerCrowded(ctx *fasthttp.RequestCtx, x *exchange) {
	g.metrics.crowded.Inc()
	x.note("deny", concurrency, 0)
	x.quota = strconv.AppendInt(x.quota[:0], retryAfter(0, g.random), 10)
	ctx.Response.Header.SetBytesV(fasthttp.HeaderRetryAfter, x.quota)
	x.quota = x.quota[:0]
	answer(ctx, fasthttp.StatusTooManyRequests, concurrency.refusal)
}
