// Package telemetry exports OpenTelemetry spans of single purchases: the request, the decision, the batch that wrote
// the order, and the calls that reported it. It is off unless an OTLP endpoint is configured: a nil *Tracer does
// nothing and allocates nothing. Spans never delay or fail a purchase; a span that cannot be exported is dropped.
//
// A purchase passes through two queues. The parts of its trace are connected by the traceparent under which it was
// accepted. The admission script stores it beside a sampled order (keyspace.Shard.Trace), where it expires. Queue
// messages, rows and journals do not contain it.
package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/sale"
	"sluice/internal/tracing"
)

// Tracer starts spans. A nil Tracer is off. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer of a provider, for spans of this version of sluice. The sampler of the provider must be that of
// tracing.Sampling.
func New(provider trace.TracerProvider, version string) *Tracer {
	return &Tracer{provider.Tracer("sluice", trace.WithInstrumentationVersion(version))}
}

// fail sets the status of a span to an error, with an error.type in the terms of OpenTelemetry's conventions.
func fail(span trace.Span, err error) {
	kind := "_OTHER"
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		kind = "timeout"
	case errors.Is(err, sale.ErrUnavailable):
		kind = "unavailable"
	}
	tracing.Fail(span, kind, err.Error())
}

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
