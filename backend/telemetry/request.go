package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/sale"
)

// maxRequestID bounds the recorded bytes of a request id. Edges send 32.
const maxRequestID = 64

// Header returns the value of a request header, or "". The value must be a copy if the request reuses its memory.
type Header func(name string) string

// Request is the span of an HTTP request. A nil Request is not traced.
type Request struct {
	tracer *Tracer
	span   trace.Span
	ctx    context.Context // carries the span
}

// Request starts the span of a request. Its parent is the traceparent header from the edge or the client. route is the
// route of the API with its parameters, such as {sale}. Request returns nil if the request is not sampled.
func (t *Tracer) Request(method, route string, header Header) *Request {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	if parent := header("traceparent"); parent != "" {
		ctx = wire.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": header("tracestate")})
	}
	ctx, span := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route),
			attribute.String("url.scheme", "http")))
	if !span.SpanContext().IsSampled() {
		return nil
	}
	if id := header("X-Request-Id"); id != "" { // also in the log of the edge
		span.SetAttributes(attribute.StringSlice("http.request.header.x-request-id",
			[]string{id[:min(len(id), maxRequestID)]}))
	}
	return &Request{tracer: t, span: span, ctx: ctx}
}

// Context returns a context that carries the span, for logs. It is never cancelled.
func (r *Request) Context() context.Context {
	if r == nil {
		return context.Background()
	}
	return r.ctx
}

// End ends the span with the status of the response.
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

// Sending is the span of a decision. Later spans of the order refer to it. A nil Sending is not traced.
type Sending struct{ span trace.Span }

// Send starts the span of a decision.
func (r *Request) Send(saleID string) *Sending {
	if r == nil {
		return nil
	}
	step := Step{Operation: "send", Destination: "orders"}
	_, span := r.tracer.tracer.Start(
		r.ctx, step.name(), trace.WithSpanKind(step.kind()), trace.WithAttributes(step.attributes()...),
		trace.WithAttributes(attribute.String("sluice.sale.id", saleID)),
	)
	return &Sending{span}
}

// Parent returns the traceparent to store with the order, or "".
func (s *Sending) Parent() string {
	if s == nil {
		return ""
	}
	return format(s.span.SpanContext())
}

// Decided ends the span. err is the error if there was no decision.
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
