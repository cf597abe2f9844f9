package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Post is the span of a POST to somebody else who is told of an order, in the trace of that order. nil is one of which nothing is shown.
type Post struct{ span trace.Span }

// Post begins it; host is who is told, and before how often that was tried. It returns nil when the order is not traced.
func (t *Tracer) Post(item Item, host string, before int) *Post {
	parent := parse(item.Parent)
	if t == nil || !parent.IsSampled() {
		return nil
	}
	_, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), "POST webhook", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", "POST"), attribute.String("server.address", host), attribute.Int("http.request.resend_count", before),
			attribute.String("sluice.order.id", item.Order.String()), attribute.String("sluice.sale.id", item.SaleID)))
	return &Post{span}
}

// Parent is the traceparent that the request carries; "" for none.
func (p *Post) Parent() string {
	if p == nil {
		return ""
	}
	return format(p.span.SpanContext())
}

// End ends the span with the status that was answered, or with why there was none.
func (p *Post) End(status int, err error) {
	switch {
	case p == nil:
		return
	case err != nil:
		p.span.SetStatus(codes.Error, err.Error())
	default:
		p.span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status < 200 || status > 299 {
			p.span.SetStatus(codes.Error, "")
		}
	}
	p.span.End()
}
