package gateway

import (
	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
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
			x.renews = nil    // how far it got, nobody knows
			x.streaming = nil // Reset has closed it
		}
		g.metrics.answered(ctx.Response.StatusCode())
		g.finish(ctx, x)
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
	x.logged = true
	g.handle(ctx, x, client)
	ctx.Response.Header.SetBytesV("X-Request-Id", x.id[:])
	if x.headers.last || guarded && client.guard.state == unframed {
		ctx.SetConnectionClose()
	}
}

// received corrects what fasthttp makes of a head. Whether a connection is closed, headers.connection says: what nginx finds in a Connection header,
// fasthttp may not. A client of HTTP/1.0 can do nothing with an interim answer, and others may ask for it in letters of any case. Nobody is told to go on
// with a body that is too large.
func received(h *fasthttp.RequestHeader) (none fasthttp.RequestConfig) {
	h.ResetConnectionClose()
	switch expected := h.Peek(fasthttp.HeaderExpect); {
	case len(expected) == 0:
	case !h.IsHTTP11(), h.ContentLength() > MaxBody:
		h.Del(fasthttp.HeaderExpect)
	case foldedEqual(expected, "100-continue"):
		h.Set(fasthttp.HeaderExpect, "100-continue")
	}
	return none
}

// finish is for when the answer is known: now, or for a stream, when that has ended.
func (g *Gateway) finish(ctx *fasthttp.RequestCtx, x *exchange) {
	var note func(int64)
	switch {
	case g.access == nil || !x.logged:
	case x.streaming == nil:
		g.access.add(ctx, x)
	default:
		note = g.access.later(ctx, x)
	}
	switch {
	case x.streaming == nil && x.entered:
		g.crowd.leave(x.key)
	case x.streaming != nil:
		key, entered := x.key, x.entered
		x.streaming.after = func(sent int64) {
			if entered {
				g.crowd.leave(key)
			}
			if note != nil {
				note(sent)
			}
		}
	}
}

// handle finds the answer. client is nil where the connection is none of Serve's.
func (g *Gateway) handle(ctx *fasthttp.RequestCtx, x *exchange, client *conn) {
	var ok bool
	x.headers.last = !ctx.Request.Header.IsHTTP11()
	x.path, ok = decodePath(x.path, splitTarget(ctx.Request.Header.RequestURI()))
	if !ok || !x.headers.read(ctx.Request.Header.RawHeaders()) {
		g.metrics.malformed.Inc()
		answer(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
		ctx.SetConnectionClose()
		return
	}
	if ctx.IsConnect() || ctx.IsTrace() {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, allowed(x.path))
		answer(ctx, fasthttp.StatusMethodNotAllowed, bodyNotAllowed)
		return
	}
	policy := g.policy.Load()
	if client != nil {
		x.client = relayed(policy.trusted, x.client, client.named())
	}
	x.client = clientOf(policy.trusted, x.client, x.headers.forwarded)
	place := placeOf(x.path)
	if place != elsewhere && client != nil && client.guard.state == unframed { // nothing there has a body
		answer(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
		return
	}
	switch place {
	case healthPlace:
		g.answerHealth(ctx)
		x.logged = ctx.Response.StatusCode() != fasthttp.StatusOK
		return
	case hiddenPlace:
		answer(ctx, fasthttp.StatusNotFound, bodyNotFound)
		return
	}
	x.key = limit.Address(x.client)
	x.entered = g.crowd.enter(x.key)
	if policy.repeats && g.repeated(ctx, x) {
		return
	}
	if !x.entered {
		if !g.over(ctx, policy, x) {
			g.answerCrowded(ctx, x)
		}
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
