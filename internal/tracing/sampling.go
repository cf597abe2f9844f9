package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Sampling is the meaning of OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.
type Sampling struct {
	FollowParent bool    // the caller's decision applies to a request with a traceparent
	Ratio        float64 // share of the other requests that are sampled, 0 to 1
}

// Includes reports whether the ratio includes a trace. The decision depends on the id alone and equals that of
// OpenTelemetry's TraceIDRatioBased.
func (s Sampling) Includes(id trace.TraceID) bool {
	return binary.BigEndian.Uint64(id[8:])>>1 < uint64(s.Ratio*(1<<63))
}

// Sampler returns a sampler that samples a span without a parent if it links to a sampled span, so that a batch is
// exported if one of its orders is sampled. A span that was started with Decided is sampled in any case.
func (s Sampling) Sampler() sdk.Sampler {
	base := sdk.TraceIDRatioBased(s.Ratio)
	if s.FollowParent {
		base = sdk.ParentBased(base)
	}
	return sampler{base}
}

type sampler struct{ base sdk.Sampler }

// ShouldSample implements sdk.Sampler.
func (l sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if _, decided := p.ParentContext.Value(decidedKey{}).(decision); decided {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	for _, link := range p.Links {
		if link.SpanContext.IsSampled() {
			return sdk.SamplingResult{Decision: sdk.RecordAndSample}
		}
	}
	return l.base.ShouldSample(p)
}

// Description implements sdk.Sampler.
func (l sampler) Description() string { return "sluice(" + l.base.Description() + ")" }

type (
	decidedKey struct{}
	decision   struct {
		trace trace.TraceID
		span  trace.SpanID
	}
)

// Decided returns a context in which the next span is sampled and has these ids. The trace id applies to a span without
// a parent.
func Decided(ctx context.Context, t trace.TraceID, s trace.SpanID) context.Context {
	return context.WithValue(ctx, decidedKey{}, decision{t, s})
}

// ids generates the ids of spans: those of Decided, otherwise random ones.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if d, decided := ctx.Value(decidedKey{}).(decision); decided {
		return d.trace, d.span
	}
	for !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(t[8:], rand.Uint64())
	}
	return t, randomSpan()
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if d, decided := ctx.Value(decidedKey{}).(decision); decided {
		return d.span
	}
	return randomSpan()
}

func randomSpan() (s trace.SpanID) {
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}
