package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// wire reads and writes the headers of W3C Trace Context.
var wire propagation.TraceContext

// parse reads a traceparent; one that is not good is an invalid SpanContext, which is not sampled.
func parse(parent string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(wire.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent}))
}

// format is the traceparent of a sampled span; "" for any other.
func format(sc trace.SpanContext) string {
	if !sc.IsValid() || !sc.IsSampled() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}
