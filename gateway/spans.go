package gateway

import (
	"time"

	"github.com/valyala/fasthttp"

	"sluice/internal/edgetrace"
)

// joinTrace decides whether the request is sampled, and sets the traceparent that a backend receives. A client's
// traceparent passes unchanged if neither the client nor the edge samples the request.
func (g *Gateway) joinTrace(x *exchange) {
	if g.config.Spans == nil {
		return
	}
	x.parent = x.Headers.TraceParent()
	x.sampled = g.config.Spans.Sampled(&x.ID, x.parent)
	if !x.sampled && x.parent != nil && !edgetrace.IsSampled(x.parent) {
		return
	}
	line := append(x.traceLine[:0], "Traceparent: "...)
	x.traceLine = append(edgetrace.AppendParent(line, &x.ID, x.parent, x.sampled), "\r\n"...)
	x.Headers.SetTraceParent(x.traceLine)
	x.LogAttempts = x.LogAttempts || x.sampled
}

// spanOf describes a sampled request whose response is complete, or is being streamed.
func (g *Gateway) spanOf(ctx *fasthttp.RequestCtx, x *exchange) *edgetrace.Request {
	h, scheme, rule := &ctx.Request.Header, "http", ""
	if g.certificate != nil {
		scheme = "https"
	}
	if x.rule != nil {
		rule = x.rule.Name
	}
	now := time.Now()
	return &edgetrace.Request{
		ID: string(x.ID[:]), Parent: string(x.parent), Begin: now.Add(-since(ctx, now)), End: now, Sent: x.forwarded,
		Method: string(h.Method()), Target: string(h.RequestURI()), Scheme: scheme, Host: string(h.Host()),
		Client: x.Client.String(), Status: ctx.Response.StatusCode(), Verdict: x.verdict, Rule: rule,
		Upstreams: string(x.Attempts.Upstreams), Statuses: string(x.Attempts.Statuses),
		Seconds: string(x.Attempts.Seconds),
	}
}
