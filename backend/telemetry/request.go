package telemetry

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/sale"
	"sluice/internal/tracing"
)

// maxRequestID bounds the recorded bytes of a request id. Edges send 32.
const maxRequestID = 64

// Request is the span of an HTTP request. A nil Request is not traced.
type Request struct {
	tracer *Tracer
	span   trace.Span
	ctx    context.Context // carries the span
}

// Request starts the span of a request. Its parent is the traceparent header from the edge or the client. route is the
// route of the API with its parameters, such as {sale}; path is the path of the URL. header returns a header of the
// request, or ""; the value must be a copy if the request reuses its memory. Request returns nil if the request is not
// sampled.
func (t *Tracer) Request(method, route string, path []byte, header func(name string) string) *Request {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	if parent := header("traceparent"); parent != "" {
		ctx = wire.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": header("tracestate")})
	}
	ctx, span := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route)))
	if !span.SpanContext().IsSampled() {
		return nil
	}
	span.SetAttributes(attribute.String("url.path", tracing.Text(string(path))))
	span.SetAttributes(tracing.Addressed(header("X-Forwarded-Proto"), tracing.Text(header("Host")))...)
	if id := header("X-Request-Id"); id != "" { // also in the log of the edge
		span.SetAttributes(attribute.StringSlice("http.request.header.x-request-id",
			[]string{tracing.Text(id[:min(len(id), maxRequestID)])}))
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

// In returns ctx with the span of the request, for calls to Redis and PostgreSQL. It returns ctx itself if the request
// is not traced.
func (r *Request) In(ctx context.Context) context.Context {
	if r == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, r.span)
}

// TraceID returns the id of the trace in hexadecimal digits, or "".
func (r *Request) TraceID() string {
	if r == nil {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// End ends the span with the status of the response.
func (r *Request) End(status int) {
	if r == nil {
		return
	}
	r.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 500 {
		tracing.Fail(r.span, strconv.Itoa(status), "")
	}
	r.span.End()
}

// Sending is the span of the step that sends an order to the queue. Later spans of the order refer to it. A nil Sending
// is not traced.
type Sending struct {
	request trace.Span
	span    trace.Span
}

// Send starts the span of a purchase's decision.
func (r *Request) Send(saleID string) *Sending {
	if r == nil {
		return nil
	}
	_, span := r.tracer.start(r.ctx, Step{Operation: "send", Destination: "orders"},
		trace.WithAttributes(attribute.String("sluice.sale.id", saleID)))
	return &Sending{r.span, span}
}

// Parent returns the traceparent to store with the order, or "".
func (s *Sending) Parent() string {
	if s == nil {
		return ""
	}
	return format(s.span.SpanContext())
}

// Decided records the decision in the span of the request. It ends the span of the sending if an order was sent, or
// may have been (err is not nil). A rejected or repeated purchase sends no order: its span never ends, so it is not
// exported.
func (s *Sending) Decided(outcome sale.Outcome, order sale.OrderID, err error) {
	if s == nil {
		return
	}
	if err == nil {
		s.request.SetAttributes(attribute.String("sluice.outcome", string(outcome)))
	}
	if order != 0 {
		s.request.SetAttributes(attribute.String("sluice.order.id", order.String()))
	}
	switch {
	case err != nil:
		fail(s.span, err)
	case outcome == sale.Accepted:
		s.span.SetAttributes(attribute.String("sluice.order.id", order.String()),
			attribute.String("messaging.message.id", order.String()))
	default:
		return
	}
	s.span.End()
}
