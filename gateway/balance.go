package gateway

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/policy"
)

// balancer spreads requests over the backends in turn.
type balancer struct {
	upstreams []*upstream // at most maxUpstreams
	turn      atomic.Uint32
}

const maxUpstreams = 64

var errNobody = errors.New("no backend may be tried")

// forward passes the request to a backend, and to the next one when the first cannot be reached or breaks off. It fills the response, also when
// it returns an error.
func (g *Gateway) forward(ctx *fasthttp.RequestCtx, x *exchange) error {
	x.repeatable = repeatable(ctx.Request.Header.Method(), x.path)
	x.timeout = g.timeouts.other
	if ctx.IsGet() && order.Covers(ctx.Request.Header.Method(), x.path) {
		x.timeout = g.timeouts.wait
	}
	x.compose(ctx)
	err := g.try(ctx, x)
	if err == nil {
		return nil
	}
	x.reason = err.Error()
	ctx.Response.Reset()
	ctx.Response.Header.DisableNormalizing()
	g.answerUnavailable(ctx)
	return err
}

func (g *Gateway) try(ctx *fasthttp.RequestCtx, x *exchange) error {
	all := g.balancer.upstreams
	first := int(g.balancer.turn.Add(1)) % len(all)
	tried, last := uint64(0), errNobody
	began := g.clock.elapsed()
	for _, lastResort := range [...]bool{false, true} {
		for i := range all {
			n := (first + i) % len(all)
			u := all[n]
			if tried&(1<<n) != 0 || !u.enter(lastResort) {
				continue
			}
			tried |= 1 << n
			start := g.clock.elapsed()
			err := x.ask(ctx, u, start)
			took := g.clock.elapsed() - start
			x.tell(ctx, u, err, took)
			u.leave(err)
			if err == nil {
				u.seconds.Observe(took.Seconds())
				return nil
			}
			if last = err; !again(err, x.repeatable, start+took-began) {
				return err
			}
		}
	}
	return last
}

// tell takes down one try for the log.
func (x *exchange) tell(ctx *fasthttp.RequestCtx, u *upstream, err error, took time.Duration) {
	if x.gateway.access == nil {
		return
	}
	if len(x.upstream) > 0 {
		x.upstream, x.upstreamStatus, x.upstreamSeconds = append(x.upstream, ", "...), append(x.upstreamStatus, ", "...), append(x.upstreamSeconds, ", "...)
	}
	status := ctx.Response.StatusCode()
	switch {
	case errors.Is(err, errTimeout):
		status = fasthttp.StatusGatewayTimeout
	case err != nil:
		status = fasthttp.StatusBadGateway
	}
	x.upstream = append(x.upstream, u.name...)
	x.upstreamStatus = strconv.AppendInt(x.upstreamStatus, int64(status), 10)
	x.upstreamSeconds = strconv.AppendFloat(x.upstreamSeconds, took.Seconds(), 'f', 3, 64)
}

// passOver is how long after the first try a request may still go to another backend because one does not answer, as nginx's proxy_next_upstream_timeout has it: a purchase
// goes on once, and who waits for an order does not.
const passOver = 8 * time.Second

// again says whether another backend may be asked after err, so long after the first try. A request that never left may always be sent again. One without an answer may have
// been carried out; its repetition then finds what came of it.
func again(err error, repeatable bool, after time.Duration) bool {
	return errors.Is(err, errDial) || repeatable && (errors.Is(err, errBroken) || errors.Is(err, errTimeout) && after < passOver)
}

var (
	orders = policy.Match{Method: fasthttp.MethodPost, Path: "/v1/sales/*/orders"}
	order  = policy.Match{Method: fasthttp.MethodGet, Path: "/v1/orders/*"} // which may be waited for
)

// repeatable says whether sending a request twice does no more than sending it once. Of POSTs, purchases are: the backend remembers them under
// the edge's X-Request-Id.
func repeatable(method, path []byte) bool {
	switch string(method) {
	case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodOptions:
		return true
	}
	return orders.Covers(method, path)
}

// ask sends the request to one backend. A pooled connection may have died since its last use, which says nothing about the backend: then a new one
// is made. now is the time of the clock.
func (x *exchange) ask(ctx *fasthttp.RequestCtx, u *upstream, now time.Duration) error {
	if c := u.pooled(); c != nil {
		err := x.over(ctx, u, c, now)
		if !errors.Is(err, errBroken) || !x.repeatable {
			return err
		}
		u.flush()
	}
	c, err := u.connect(context.Background())
	if err != nil {
		return errDial
	}
	return x.over(ctx, u, c, u.clock.elapsed())
}

// hold waits out a delay, or less when the edge is about to stop.
func (g *Gateway) hold(wait time.Duration) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-g.draining:
	}
}
