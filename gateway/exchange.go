package gateway

import (
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/gateway/proxy"
	"sluice/gateway/refusalcache"
	"sluice/internal/edgetrace"
)

// exchange is the state of one request and its response. Exchanges are pooled.
type exchange struct {
	proxy.Request
	decision
}

// decision is what the edge decides about a request, for the response headers and the access log.
type decision struct {
	path    []byte    // decoded
	key     limit.Key // of the client address
	counted bool      // by the concurrency limiter

	// The rules that match the request, those by address first. rules and checks have the same indices.
	rules           []*rule
	checks          []limit.Check
	fleet           []fleetCheck
	byIP, fleetByIP int // how many of rules and of fleet count by address

	origin []byte // of the page that sent the request, if it may read the response

	quota, quotaPolicy []byte // values of RateLimit and RateLimit-Policy for a forwarded request

	sale        []byte               // id of the sale of a purchase; part of path
	revalidates *refusalcache.Record // the request revalidates this record
	scratch     []byte               // buffer

	sampled   bool      // spans of the request are exported
	parent    []byte    // the client's valid traceparent, or nil
	traceLine []byte    // the traceparent for a backend, as a header line
	forwarded time.Time // of a sampled request

	// For the access log and spans:
	logged    bool
	unread    bool // the request could not be parsed
	buyer     string
	verdict   string
	rule      *rule
	remaining int
	shadow    string
	reason    string
}

func (x *exchange) reset() {
	x.Request.Reset()
	clear(x.rules)
	clear(x.fleet)
	x.decision = decision{path: x.path[:0], rules: x.rules[:0], checks: x.checks[:0], fleet: x.fleet[:0],
		quota: x.quota[:0], quotaPolicy: x.quotaPolicy[:0], scratch: x.scratch, traceLine: x.traceLine}
}

func (x *exchange) note(verdict string, r *rule, remaining int) {
	x.verdict, x.rule, x.remaining = verdict, r, remaining
}

// finish completes a request after its response was written. It also handles a panic of the handler, and is called
// with defer.
func (g *Gateway) finish(ctx *fasthttp.RequestCtx, x *exchange) {
	if r := recover(); r != nil {
		g.log.Error("panic in a request handler", "panic", r)
		ctx.Response.Reset() // closes a stream
		respond(ctx, fasthttp.StatusInternalServerError, bodyInternal)
		ctx.SetConnectionClose()
		x.revalidates = nil // a backend may have processed the request
	}
	g.metrics.responded(ctx.Response.StatusCode())
	if x.Streaming() {
		g.finishStream(ctx, x)
	} else {
		if g.access != nil && x.logged {
			g.access.add(ctx, x)
		}
		if x.sampled && x.logged && !g.config.Spans.Full() {
			g.config.Spans.Record(g.spanOf(ctx, x))
		}
		if x.counted {
			g.concurrency.leave(x.key)
		}
	}
	if x.revalidates != nil {
		x.revalidates.Release()
	}
	x.reset()
	g.exchanges.Put(x)
}

// finishStream prepares the log entry and the span. When the stream ends, it writes both, and the concurrency limiter
// no longer counts the request.
func (g *Gateway) finishStream(ctx *fasthttp.RequestCtx, x *exchange) {
	var writeEntry func(sent int64)
	if g.access != nil && x.logged {
		writeEntry = g.access.later(ctx, x)
	}
	var span *edgetrace.Request
	if x.sampled {
		span = g.spanOf(ctx, x)
	}
	key, counted := x.key, x.counted
	x.OnStreamEnd(func(sent int64) {
		if counted {
			g.concurrency.leave(key)
		}
		if writeEntry != nil {
			writeEntry(sent)
		}
		if span != nil {
			span.End = time.Now()
			g.config.Spans.Record(span)
		}
	})
}
