package gateway

import (
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/internal/problem"
)

// What the edge itself says. The nginx edge says the same, byte for byte.
var (
	bodyBadRequest   = problem.New(problem.BadRequest, "The request could not be read as HTTP.").Body()
	bodyUnauthorized = problem.New(problem.Unauthorized, "A valid token is needed.").Body()
	bodyNotFound     = problem.New(problem.NotFound, "There is nothing here.").Body()
	bodyNotAllowed   = problem.New(problem.MethodNotAllowed, "This method is not allowed here.").Body()
	bodyTooLarge     = problem.New(problem.BodyTooLarge, "The request body is too large.").Body()
	bodyHeadTooLarge = problem.New(problem.HeaderTooLarge, "The request line and headers are too large.").Body()
	bodyInternal     = problem.New(problem.Internal, "Something went wrong here.").Body()
	bodyUnavailable  = problem.New(problem.Unavailable, "The service is busy. Please try again in a moment.").Body()
	bodyHealthy      = []byte(`{"status":"ok"}`)
)

func answer(ctx *fasthttp.RequestCtx, status int, body []byte) {
	h := &ctx.Response.Header
	ctx.Response.SetStatusCode(status)
	switch status { // in the words of nginx
	case fasthttp.StatusMethodNotAllowed:
		h.SetStatusMessage([]byte("Not Allowed"))
	case fasthttp.StatusServiceUnavailable:
		h.SetStatusMessage([]byte("Service Temporarily Unavailable"))
	}
	h.SetContentType(problem.ContentType)
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	ctx.Response.SetBodyRaw(body)
}

func (g *Gateway) answerHealth(ctx *fasthttp.RequestCtx) {
	if !ctx.IsGet() && !ctx.IsHead() {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, "GET, HEAD")
		answer(ctx, fasthttp.StatusMethodNotAllowed, bodyNotAllowed)
		return
	}
	ctx.Response.Header.SetContentType("application/json")
	ctx.Response.SetBodyRaw(bodyHealthy)
}

func (g *Gateway) answerUnauthorized(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer error="invalid_token"`)
	answer(ctx, fasthttp.StatusUnauthorized, bodyUnauthorized)
}

// answerUnavailable is for what is our fault: no room, no backend. A client that is too fast gets a 429.
func (g *Gateway) answerUnavailable(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
	answer(ctx, fasthttp.StatusServiceUnavailable, bodyUnavailable)
}

func (g *Gateway) answerQuota(ctx *fasthttp.RequestCtx, x *exchange, r *rule, v limit.Verdict) {
	h := &ctx.Response.Header
	x.quota = appendQuota(x.quota[:0], r.Name, 0, v.Wait)
	h.SetBytesV("RateLimit", x.quota)
	h.Set("RateLimit-Policy", r.policyField)
	x.quota = strconv.AppendInt(x.quota[:0], retryAfter(v.Wait, g.random), 10)
	h.SetBytesV(fasthttp.HeaderRetryAfter, x.quota)
	answer(ctx, fasthttp.StatusTooManyRequests, r.refusal)
}

// answerUnreadable is fasthttp's handler of requests that it could not read. The connection is closed after it.
func (g *Gateway) answerUnreadable(ctx *fasthttp.RequestCtx, err error) {
	g.metrics.malformed.Inc()
	ctx.Response.Reset()
	ctx.Response.Header.DisableNormalizing()
	x := exchange{gateway: g, unread: true}
	x.newID()
	reason := noFault
	if c, ok := ctx.Conn().(*conn); ok {
		x.client, reason = c.peer, c.guard.fault
		c.linger.Store(true)
	}
	var small *fasthttp.ErrSmallBuffer
	switch {
	case reason == requestSlow: // for the log alone: the connection passes on no answer
		ctx.Response.SetStatusCode(fasthttp.StatusRequestTimeout)
	case reason == headTooBig || errors.As(err, &small):
		answer(ctx, fasthttp.StatusRequestHeaderFieldsTooLarge, bodyHeadTooLarge)
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		answer(ctx, fasthttp.StatusRequestEntityTooLarge, bodyTooLarge)
	default:
		answer(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
	}
	ctx.Response.Header.SetBytesV("X-Request-Id", x.id[:])
	ctx.SetConnectionClose()
	g.metrics.answered(ctx.Response.StatusCode())
	if g.access != nil {
		g.access.add(ctx, &x)
	}
}

// allowed is what may be done where the edge itself says that a method may not.
func allowed(path []byte) string {
	if placeOf(path) == healthPlace {
		return "GET, HEAD"
	}
	return "GET, HEAD, POST"
}
