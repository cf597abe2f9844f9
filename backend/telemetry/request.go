package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/sale"
)

// maxRequestID bounds the bytes of a request's id that are kept. Edges send 32.
const maxRequestID = 64

// Header answers the value of a request's header, "" without one. What it answers is kept only if it is a copy.
type Header func(name string) string

// Request is the span of an HTTP request. nil is a request of which nothing is shown.
type Request struct {
	tracer *Tracer
	span   trace.Span
	ctx    context.Context // of the span, for those below it
}

// Request begins the span of a request. Its parent is what the edge, or whoever is before it, says in traceparent. route is that of the API, with {sale} for a part that
// is a parameter. It returns nil when the request is not sampled.
func (t *Tracer) Request(method, route string, header Header) *Request {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	if parent := header("traceparent"); parent != "" {
		ctx = wire.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": header("tracestate")})
	}
	ctx, span := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route), attribute.String("url.scheme", "http")))
	if !span.SpanContext().IsSampled() {
		return nil
	}
	if id := header("X-Request-Id"); id != "" { // by which the edge's log has it
		span.SetAttributes(attribute.StringSlice("http.request.header.x-request-id", []string{id[:min(len(id), maxRequestID)]}))
	}
	return &Request{tracer: t, span: span, ctx: ctx}
}

// Context carries the span, for logs. It is never done.
func (r *Request) Context() context.Context {
	if r == nil {
		return context.Background()
	}
	return r.ctx
}

// End ends the span with the status that was answered.
func (r *Request) End(status int) {
	if r == nil {
		return
	}
	r.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 500 {
		r.span.SetStatus(codes.Error, "")
	}
	r.span.End()
}

// Sending is the span of a purchase from when it asks for a unit until it is decided; what comes of the order refers to it. nil is one of which nothing is shown.
type Sending struct{ span trace.Span }

// Send begins it.
func (r *Request) Send(saleID string) *Sending {
	if r == nil {
		return nil
	}
	step := Step{Operation: "send", Destination: "orders"}
	_, span := r.tracer.tracer.Start(r.ctx, step.name(), trace.WithSpanKind(step.kind()), trace.WithAttributes(step.attributes()...),
		trace.WithAttributes(attribute.String("sluice.sale.id", saleID)))
	return &Sending{span}
}

// Parent is the traceparent for what comes of the order; "" when nothing is shown.
func (s *Sending) Parent() string {
	if s == nil {
		return ""
	}
	return format(s.span.SpanContext())
}

// Decided ends it. err is why nothing was decided.
func (s *Sending) Decided(outcome sale.Outcome, order sale.OrderID, err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	} else {
		s.span.SetAttributes(attribute.String("sluice.outcome", outcome.String()))
	}
	if order != 0 {
		s.span.SetAttributes(attribute.String("sluice.order.id", order.String()))
	}
	s.span.End()
}
