package gateway

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/policy"
	"sluice/gateway/proxy"
)

var (
	purchase    = policy.Match{Method: fasthttp.MethodPost, Path: "/v1/sales/*/orders"}
	orderStatus = policy.Match{Method: fasthttp.MethodGet, Path: "/v1/orders/*"} // may wait for the order
)

func (g *Gateway) forward(ctx *fasthttp.RequestCtx, x *exchange) {
	method := ctx.Request.Header.Method()
	x.Repeatable = isRepeatable(method, x.path)
	x.Timeout = g.config.AnswerTimeout
	if ctx.IsGet() && orderStatus.Covers(method, x.path) {
		x.Timeout = g.config.WaitTimeout
	}
	if x.sampled {
		x.forwarded = time.Now()
	}
	sent := g.now()
	err := g.proxy.Forward(ctx, &x.Request)
	switch {
	case err == nil:
	case errors.Is(err, proxy.ErrHTTP10):
		respond(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
	default:
		x.reason = err.Error()
		respondUnavailable(ctx, x)
	}
	if len(x.sale) > 0 {
		g.updateCache(ctx, x, sent, err)
	}
	if len(x.quota) > 0 {
		ctx.Response.Header.Add("RateLimit-Policy", ascii.String(x.quotaPolicy))
		ctx.Response.Header.Add("RateLimit", ascii.String(x.quota))
	}
}

// isRepeatable reports whether a backend may process a request twice without a second effect. It returns true for
// purchases, because backends deduplicate them by X-Request-Id.
func isRepeatable(method, path []byte) bool {
	switch string(method) {
	case fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodOptions:
		return true
	}
	return purchase.Covers(method, path)
}

// delay waits, but not longer than until draining begins.
func (g *Gateway) delay(wait time.Duration) {
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-g.draining:
	}
}
