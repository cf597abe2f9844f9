package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/sale"
	"sluice/internal/tracing"
)

// maxLinks bounds the traced orders of a batch: the links of its span, and the spans in the traces of the orders. It is
// the default limit of OpenTelemetry.
const maxLinks = 128

// Item is one order of a batch. Parent is the traceparent under which it was accepted, or "" if it is not traced.
type Item struct {
	Order   sale.OrderID
	SaleID  string
	Message string // id of its message; "" if the order is not sent or received in a message
	Parent  string
}

// Step describes the processing of a batch, in the terms of OpenTelemetry's conventions for messaging.
type Step struct {
	Operation   string    // "process" for a consumer, "send" for a producer
	Destination string    // "orders" or "events"
	Group       string    // consumer group; "" for none
	Began       time.Time // start of the span; zero means now
}

// Batch is the span of a batch, in its own trace, with links to the traces of its orders. Each of these traces gets a
// span of the same duration, so that it shows the whole purchase. A nil Batch is not traced.
type Batch struct {
	tracer  *Tracer
	step    Step
	span    trace.Span
	items   []Item
	parents []trace.SpanContext // of items
}

// Batch starts the span of a batch of n orders if one of the items is traced. The returned context carries the span.
func (t *Tracer) Batch(ctx context.Context, step Step, n int, items []Item) (context.Context, *Batch) {
	if t == nil {
		return ctx, nil
	}
	if step.Began.IsZero() {
		step.Began = time.Now()
	}
	b := &Batch{tracer: t, step: step}
	var links []trace.Link
	for _, item := range items {
		if len(links) == maxLinks {
			break
		}
		if sc := parse(item.Parent); sc.IsSampled() {
			links = append(links, trace.Link{SpanContext: sc})
			b.items, b.parents = append(b.items, item), append(b.parents, sc)
		}
	}
	if len(links) == 0 {
		return ctx, nil
	}
	ctx, b.span = t.start(ctx, step, trace.WithNewRoot(), trace.WithLinks(links...),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", n)))
	return ctx, b
}

// End ends the span. err is the error of the whole batch, failed has the errors of single orders.
func (b *Batch) End(err error, failed map[sale.OrderID]string) {
	if b == nil {
		return
	}
	end := time.Now()
	for i, item := range b.items {
		parent := trace.ContextWithRemoteSpanContext(context.Background(), b.parents[i])
		_, span := b.tracer.start(parent, b.step, trace.WithLinks(trace.Link{SpanContext: b.span.SpanContext()}),
			trace.WithAttributes(item.attributes()...))
		if reason, isFailed := failed[item.Order]; isFailed {
			tracing.Fail(span, "rejected", reason)
		} else if err != nil {
			fail(span, err)
		}
		span.End(trace.WithTimestamp(end))
	}
	if err != nil {
		fail(b.span, err)
	} else if len(failed) > 0 {
		b.span.SetAttributes(attribute.Int("sluice.failed_orders", len(failed)))
		tracing.Fail(b.span, "rejected", "some orders failed")
	}
	b.span.End(trace.WithTimestamp(end))
}

// attributes returns the attributes of the order.
func (i Item) attributes() []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("sluice.order.id", i.Order.String()), attribute.String("sluice.sale.id", i.SaleID),
	}
	if i.Message != "" {
		all = append(all, attribute.String("messaging.message.id", i.Message))
	}
	return all
}

// start starts a span of a step.
func (t *Tracer) start(
	ctx context.Context, s Step, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	kind := trace.SpanKindConsumer
	if s.Operation == "send" {
		kind = trace.SpanKindProducer
	}
	attributes := []attribute.KeyValue{
		attribute.String("messaging.system", "redis"), attribute.String("messaging.operation.name", s.Operation),
		attribute.String("messaging.operation.type", s.Operation),
		attribute.String("messaging.destination.name", s.Destination),
	}
	if s.Group != "" {
		attributes = append(attributes, attribute.String("messaging.consumer.group.name", s.Group))
	}
	return t.tracer.Start(ctx, s.Operation+" "+s.Destination, append(options,
		trace.WithSpanKind(kind), trace.WithTimestamp(s.Began), trace.WithAttributes(attributes...))...)
}
