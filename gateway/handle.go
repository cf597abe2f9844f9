package gateway

import (
	"github.com/valyala/fasthttp"
)

// Handler answers one request. It relies on the connection being one that Serve accepted, which has refused what is malformed; elsewhere, as
// in tests, it takes what fasthttp takes.
func (g *Gateway) Handler(ctx *fasthttp.RequestCtx) {
	x := g.exchanges.Get().(*exchange)
	defer func() {
		if r := recover(); r != nil {
			g.log.Error("a request made the edge panic", "panic", r)
			ctx.Response.Reset()
			answer(ctx, fasthttp.StatusInternalServerError, bodyInternal)
			ctx.SetConnectionClose()
			x.renews = nil // how far it got, nobody knows
		}
		g.metrics.answered(ctx.Response.StatusCode())
		if g.access != nil && x.logged {
			g.access.add(ctx, x)
		}
		if x.renews != nil {
			x.renews.Release()
		}
		x.reset()
		g.exchanges.Put(x)
	}()
	ctx.Response.Header.DisableNormalizing()
	client, guarded := ctx.Conn().(*conn)
	if guarded {
		x.client = client.peer
	} else {
		x.client = peerOf(ctx.RemoteAddr())
	}
	x.newID()
	g.handle(ctx, x)
	ctx.Response.Header.SetBytesV("X-Request-Id", x.id[:])
	// fasthttp knows "close" only where it stands alone.
	if x.headers.last || guarded && client.guard.state == unframed {
		ctx.SetConnectionClose()
	}
}

func (g *Gateway) handle(ctx *fasthttp.RequestCtx, x *exchange) {
	var ok bool
	x.path, ok = decodePath(x.path, splitTarget(ctx.Request.Header.RequestURI()))
	if !ok || !x.headers.read(ctx.Request.Header.RawHeaders()) {
		g.metrics.malformed.Inc()
		answer(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
		return
	}
	switch placeOf(x.path) {
	case healthPlace:
		g.answerHealth(ctx)
		return
	case hiddenPlace:
		answer(ctx, fasthttp.StatusNotFound, bodyNotFound)
		return
	}
	x.logged = true
	policy := g.policy.Load()
	x.client = clientOf(policy.trusted, x.client, x.headers.forwarded)
	if policy.repeats && g.repeated(ctx, x) {
		return
	}
	wait, ok := g.admit(ctx, policy, x)
	if !ok {
		return
	}
	if wait > 0 {
		g.hold(wait)
	}
	err := g.forward(ctx, x)
	if len(x.sale) > 0 {
		g.learn(ctx, x, err)
	}
	if len(x.quota) > 0 {
		ctx.Response.Header.Add("RateLimit-Policy", asString(x.quotaPolicy))
		ctx.Response.Header.Add("RateLimit", asString(x.quota))
	}
}
