package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// call starts the span of a database call below the span in ctx. It returns a nil span if that span is not sampled.
func (t *Tracer) call(
	ctx context.Context, system, operation string, attributes ...attribute.KeyValue,
) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, nil
	}
	return t.tracer.Start(ctx, operation, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", system), attribute.String("db.operation.name", operation),
	), trace.WithAttributes(attributes...))
}
