package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/sale"
)

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
