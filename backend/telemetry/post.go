package telemetry

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/internal/tracing"
)

// Post is the span of a webhook POST, in the trace of its order. A nil Post is not traced.
type Post struct{ span trace.Span }

// Post starts the span of a POST to host after this many earlier attempts. It returns nil if the order is not traced.
func (t *Tracer) Post(item Item, host string, attempts int) *Post {
	parent := parse(item.Parent)
	if t == nil || !parent.IsSampled() {
		return nil
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
	_, span := t.tracer.Start(ctx, "POST webhook", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", "POST"), attribute.String("server.address", host),
		attribute.Int("http.request.resend_count", attempts)), trace.WithAttributes(item.attributes()...))
	return &Post{span}
}

// Parent returns the traceparent for the header of the request, or "".
func (p *Post) Parent() string {
	if p == nil {
		return ""
	}
	return format(p.span.SpanContext())
}

// End ends the span with the status of the response, or with the error.
func (p *Post) End(status int, err error) {
	switch {
	case p == nil:
		return
	case err != nil:
		fail(p.span, err)
	default:
		p.span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status < 200 || status > 299 {
			tracing.Fail(p.span, strconv.Itoa(status), "")
		}
	}
	p.span.End()
}
