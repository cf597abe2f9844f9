package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// wire parses and formats the headers of W3C Trace Context.
var wire propagation.TraceContext

// parse parses a traceparent. It returns an invalid SpanContext, which is not sampled, if the traceparent is malformed.
func parse(parent string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(wire.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent}))
}

// format returns the traceparent of a sampled span, or "".
func format(sc trace.SpanContext) string {
	if !sc.IsValid() || !sc.IsSampled() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}
