package gateway

import (
	"bytes"
	"slices"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
)

// The headers of cross-origin requests. Those of the nginx edge are identical (nginx/conf.d/80-cors.conf).
const (
	corsExposed = "Date, Idempotency-Replayed, Location, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id"
	corsMethods = "GET, HEAD, POST, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Token, Traceparent, Tracestate"
	corsAge     = "7200" // seconds; browsers keep a preflight no longer
)

// corsPath is the prefix of the API's paths. The edge allows origins for these paths only: scripts of other sites do
// not need the pages, and backends allow every origin to read the documents.
var corsPath = []byte("/v1/")

// allowOrigin sets x.origin if the request is for the API and its origin is allowed.
func (g *Gateway) allowOrigin(x *exchange) {
	isSender := func(allowed string) bool { return ascii.EqualFold(x.Headers.Origin, allowed) }
	if bytes.HasPrefix(x.path, corsPath) && slices.ContainsFunc(g.config.CORSOrigins, isSender) {
		x.origin = x.Headers.Origin
	}
}

// respondPreflight answers a preflight, by which a browser checks whether a page of an allowed origin may send a
// request. It reports whether it has answered. No limit counts preflights.
func (x *exchange) respondPreflight(ctx *fasthttp.RequestCtx) bool {
	if len(x.origin) == 0 || len(x.Headers.Preflight) == 0 || !ctx.IsOptions() || x.Headers.Chunked {
		return false
	}
	h := &ctx.Response.Header
	ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
	h.SetNoDefaultContentType(true)
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	h.Set(fasthttp.HeaderAccessControlAllowMethods, corsMethods)
	h.Set(fasthttp.HeaderAccessControlAllowHeaders, corsHeaders)
	h.Set(fasthttp.HeaderAccessControlMaxAge, corsAge)
	return true
}

// setOrigin lets a page of an allowed origin read the response.
func (x *exchange) setOrigin(ctx *fasthttp.RequestCtx) {
	if len(x.origin) == 0 {
		return
	}
	h := &ctx.Response.Header
	h.SetBytesV(fasthttp.HeaderAccessControlAllowOrigin, x.origin)
	h.Set(fasthttp.HeaderAccessControlExposeHeaders, corsExposed)
	h.Add(fasthttp.HeaderVary, fasthttp.HeaderOrigin)
}
