package gateway

import (
	"bytes"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/policy"
	"sluice/gateway/proxy"
	"sluice/internal/problem"
)

// The bodies of the edge's own responses. Those of the nginx edge are identical.
var (
	bodyBadRequest   = problem.New(problem.BadRequest, "The request is not valid HTTP.").Body()
	bodyUnauthorized = problem.New(problem.Unauthorized, "A valid token is required.").Body()
	bodyNotFound     = problem.New(problem.NotFound, "Not found.").Body()
	bodyNotAllowed   = problem.New(problem.MethodNotAllowed, "This method is not allowed here.").Body()
	bodyTooLarge     = problem.New(problem.BodyTooLarge, "The request body exceeds 16 KiB.").Body()
	bodyHeadTooLarge = problem.New(problem.HeaderTooLarge, "The request line and headers are too large.").Body()
	bodyInternal     = problem.New(problem.Internal, "Something went wrong here.").Body()
	bodyUnavailable  = problem.New(problem.Unavailable, "The service is busy. Please try again in a moment.").Body()
	bodyHealthy      = []byte(`{"status":"ok"}`)
)

//go:embed busy.html
var busyPage string

// The pages for temporary refusals. They reload themselves with a script, because browsers ignore the header Refresh if
// the address has a fragment.
var (
	tooManyPage = fillBusyPage("Too many requests came from your connection.", "您的网络请求过于频繁。")

	unavailablePage = fillBusyPage("The shop is restarting or very busy. Accepted orders are safe.",
		"商店正在重启或访问量很大，已受理的订单不会丢失。")
)

// fillBusyPage returns busy.html with the reason in English and Chinese.
func fillBusyPage(english, chinese string) []byte {
	reasons := strings.NewReplacer("$sluice_busy_en", english, "$sluice_busy_zh", chinese)
	return []byte(reasons.Replace(busyPage))
}

// respond writes a problem document. The status messages are those of nginx.
func respond(ctx *fasthttp.RequestCtx, status int, body []byte) {
	h := &ctx.Response.Header
	ctx.Response.SetStatusCode(status)
	switch status {
	case fasthttp.StatusMethodNotAllowed:
		h.SetStatusMessage([]byte("Not Allowed"))
	case fasthttp.StatusServiceUnavailable:
		h.SetStatusMessage([]byte("Service Temporarily Unavailable"))
	}
	h.SetContentType(problem.ContentType)
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	ctx.Response.SetBodyRaw(body)
}

func respondNotAllowed(ctx *fasthttp.RequestCtx, path []byte) {
	allowed := "GET, HEAD, POST"
	if policy.ReservedPath(path) == policy.HealthPath {
		allowed = "GET, HEAD"
	}
	ctx.Response.Header.Set(fasthttp.HeaderAllow, allowed)
	respond(ctx, fasthttp.StatusMethodNotAllowed, bodyNotAllowed)
}

func respondHealth(ctx *fasthttp.RequestCtx, path []byte) {
	if !ctx.IsGet() && !ctx.IsHead() {
		respondNotAllowed(ctx, path)
		return
	}
	ctx.Response.Header.SetContentType("application/json")
	ctx.Response.SetBodyRaw(bodyHealthy)
}

func respondUnauthorized(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderWWWAuthenticate, `Bearer error="invalid_token"`)
	respond(ctx, fasthttp.StatusUnauthorized, bodyUnauthorized)
}

// respondUnavailable answers 503, for a lack of resources or backends. A client that exceeds a limit receives 429
// instead.
func respondUnavailable(ctx *fasthttp.RequestCtx, x *exchange) {
	ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, "1")
	respondOrPage(ctx, x, fasthttp.StatusServiceUnavailable, bodyUnavailable, unavailablePage)
}

// respondTooMany answers a client that must wait.
func (g *Gateway) respondTooMany(ctx *fasthttp.RequestCtx, x *exchange, wait time.Duration, refusal []byte) {
	x.scratch = strconv.AppendInt(x.scratch[:0], retryAfter(wait, g.config.Random), 10)
	ctx.Response.Header.SetBytesV(fasthttp.HeaderRetryAfter, x.scratch)
	respondOrPage(ctx, x, fasthttp.StatusTooManyRequests, refusal, tooManyPage)
}

// prefersHTML reports whether HTML is the first type of an Accept header, as browsers send it to open a page.
func prefersHTML(accept []byte) bool {
	rest, found := bytes.CutPrefix(accept, []byte("text/html"))
	return found && (len(rest) == 0 || rest[0] == ',' || rest[0] == ';')
}

// respondOrPage writes a problem document, or a page for a browser that opens an address. Caches may store neither of
// them, so the response needs no Vary.
func respondOrPage(ctx *fasthttp.RequestCtx, x *exchange, status int, body, page []byte) {
	respond(ctx, status, body)
	if ctx.IsGet() && prefersHTML(x.Headers.Accept) {
		ctx.Response.Header.SetContentType("text/html; charset=utf-8")
		ctx.Response.SetBodyRaw(page)
	}
}

// respondUnreadable answers a request that fasthttp could not parse. The connection is closed afterwards.
func (g *Gateway) respondUnreadable(ctx *fasthttp.RequestCtx, err error) {
	g.metrics.malformed.Inc()
	ctx.Response.Reset()
	ctx.Response.Header.DisableNormalizing()
	var x exchange
	x.unread = true
	x.NewID()
	fault, isHead := proxy.NoFault, ctx.IsHead()
	if c, ok := ctx.Conn().(*proxy.Conn); ok {
		x.Client, fault = c.Peer(), c.Fault()
		if fault != proxy.NoFault || c.InChunkedBody() {
			isHead = c.IsHead() // fasthttp has not parsed the method, or discarded it with malformed chunks
		}
		c.Linger()
	}
	var small *fasthttp.ErrSmallBuffer
	switch {
	case fault == proxy.RequestTimeout: // only for the log: the connection discards the response
		ctx.Response.SetStatusCode(fasthttp.StatusRequestTimeout)
	case fault == proxy.HeadTooLarge || errors.As(err, &small):
		respond(ctx, fasthttp.StatusRequestHeaderFieldsTooLarge, bodyHeadTooLarge)
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		respond(ctx, fasthttp.StatusRequestEntityTooLarge, bodyTooLarge)
		g.identifyUnread(ctx, &x)
	default:
		respond(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
	}
	ctx.Response.Header.SetBytesV("X-Request-Id", x.ID[:])
	ctx.SetConnectionClose()
	ctx.Response.SkipBody = isHead
	g.metrics.responded(ctx.Response.StatusCode())
	if g.access != nil {
		g.access.add(ctx, &x)
	}
}

// identifyUnread finds the client and the origin of a request with a valid head and a body that is not read.
func (g *Gateway) identifyUnread(ctx *fasthttp.RequestCtx, x *exchange) {
	if !x.ReadHeaders(ctx) {
		return
	}
	client, _ := ctx.Conn().(*proxy.Conn)
	x.Client = clientAddress(g.policy.Load().trusted, client, x.Client, x.Headers.Forwarded)
	var ok bool
	if x.path, ok = decodePath(nil, splitTarget(ctx.Request.Header.RequestURI())); ok {
		g.allowOrigin(x)
		x.setOrigin(ctx)
	}
}

// overloadResponse returns the complete HTTP response to a connection beyond Config.MaxConns.
func overloadResponse() []byte {
	ctx := &fasthttp.RequestCtx{}
	respondUnavailable(ctx, &exchange{})
	ctx.Response.SetConnectionClose()
	var b bytes.Buffer
	_, _ = ctx.Response.WriteTo(&b)
	return b.Bytes()
}
