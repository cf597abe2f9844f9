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

// corsPath begins the paths of the API. Pages are not read by scripts of other sites, and documents allow all origins.
var corsPath = []byte("/v1/")

// allowOrigin notes the origin of a request to the API if it is allowed.
func (g *Gateway) allowOrigin(x *exchange) {
	isSender := func(allowed string) bool { return ascii.EqualFold(x.Headers.Origin, allowed) }
	if bytes.HasPrefix(x.path, corsPath) && slices.ContainsFunc(g.config.CORSOrigins, isSender) {
		x.origin = x.Headers.Origin
	}
}

// respondPreflight answers the question of a browser whether a page of an allowed origin may send a request, and
// reports whether it did. It counts for no limit.
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
