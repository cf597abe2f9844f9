package gateway

import (
	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/gateway/proxy"
)

// Handler answers one request. Requests on connections that Serve has accepted are validated before. On others, as in
// tests, it accepts what fasthttp accepts.
func (g *Gateway) Handler(ctx *fasthttp.RequestCtx) {
	x := g.exchanges.Get().(*exchange)
	defer g.finish(ctx, x)
	ctx.Response.Header.DisableNormalizing()
	client, _ := ctx.Conn().(*proxy.Conn)
	if client != nil {
		x.Client = client.Peer()
	} else {
		x.Client = proxy.AddrOf(ctx.RemoteAddr())
	}
	x.NewID()
	x.logged, x.LogAttempts = true, g.access != nil
	g.handle(ctx, x, client)
	x.setOrigin(ctx)
	ctx.Response.Header.SetBytesV("X-Request-Id", x.ID[:])
	if x.Headers.Close {
		ctx.SetConnectionClose()
	}
}

// handle writes the response. client is nil if the connection was not accepted by Serve.
func (g *Gateway) handle(ctx *fasthttp.RequestCtx, x *exchange, client *proxy.Conn) {
	p := g.policy.Load()
	if !g.parse(ctx, p, x, client) {
		return
	}
	if g.handleReserved(ctx, x) {
		return
	}
	g.allowOrigin(x)
	if x.respondPreflight(ctx) {
		return
	}
	x.key = limit.Address(x.Client)
	x.counted = g.concurrency.enter(x.key)
	if p.cacheRefusals && g.respondCached(ctx, x) {
		return
	}
	if !x.counted {
		g.refuseConcurrent(ctx, p, x)
		return
	}
	wait, ok := g.admit(ctx, p, x)
	if !ok {
		return
	}
	g.delay(wait)
	g.forward(ctx, x)
}

// parse decodes the path and the headers, and finds the client. It returns false if it has rejected the request.
func (g *Gateway) parse(ctx *fasthttp.RequestCtx, p *snapshot, x *exchange, client *proxy.Conn) bool {
	var isPath bool
	x.path, isPath = decodePath(x.path, splitTarget(ctx.Request.Header.RequestURI()))
	isHead := x.ReadHeaders(ctx)
	g.joinTrace(x)
	// nginx rejects these methods before it reads X-Forwarded-For, so both access logs have the peer as the client.
	if isPath && isHead && (ctx.IsConnect() || ctx.IsTrace()) {
		respondNotAllowed(ctx, x.path)
		ctx.SetConnectionClose()
		return false
	}
	if isHead {
		x.Client = clientAddress(p.trusted, client, x.Client, x.Headers.Forwarded)
	}
	if !isPath || !isHead {
		g.refuseMalformed(ctx)
		return false
	}
	return true
}

// handleReserved answers requests for reserved paths, and reports whether the path is one.
func (g *Gateway) handleReserved(ctx *fasthttp.RequestCtx, x *exchange) bool {
	reserved := policy.ReservedPath(x.path)
	if reserved == policy.NotReserved {
		return false
	}
	switch {
	case x.Headers.Chunked: // no reserved path accepts a body
		g.refuseMalformed(ctx)
	case reserved == policy.HealthPath:
		respondHealth(ctx, x.path)
		x.logged = ctx.Response.StatusCode() != fasthttp.StatusOK
	default:
		respond(ctx, fasthttp.StatusNotFound, bodyNotFound)
	}
	return true
}

func (g *Gateway) refuseMalformed(ctx *fasthttp.RequestCtx) {
	g.metrics.malformed.Inc()
	respond(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
	ctx.SetConnectionClose()
}
