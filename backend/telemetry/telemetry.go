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
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer starts spans. A nil Tracer is off. It is safe for concurrent use.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
}

// exportTimeout bounds the last export of a process.
const exportTimeout = 5 * time.Second

// Open returns the Tracer that the environment configures, or nil without an endpoint. service is the default of its
// name. The error lists every invalid variable. Open does not connect; failed exports are logged once a minute.
func Open(ctx context.Context, getenv func(string) string, service, version string, log *slog.Logger) (*Tracer, error) {
	s, err := readSettings(getenv)
	if err != nil || !s.on {
		return nil, err
	}
	otel.SetErrorHandler(&logThrottle{log: log})
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.endpoint))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version),
			attribute.String("service.instance.id", uuid.NewString())),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithFromEnv()) // last, so that it overrides the others
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("telemetry: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return New(sdk.NewTracerProvider(
		sdk.WithBatcher(exporter), sdk.WithSampler(Sampler(s.sampler)), sdk.WithResource(about)), version), nil
}

// New returns a Tracer of a provider, for spans of this version of sluice. The sampler of the provider must be a
// Sampler.
func New(provider *sdk.TracerProvider, version string) *Tracer {
	return &Tracer{
		tracer: provider.Tracer("sluice", trace.WithInstrumentationVersion(version)), provider: provider,
	}
}

// Close exports the remaining spans, within five seconds.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// linkSampler is the sampler of Sampler.
type linkSampler struct{ base sdk.Sampler }

// Sampler returns a sampler that samples a span without a parent if it links to a sampled span, so that a batch is
// exported if one of its orders is. base decides about other spans.
func Sampler(base sdk.Sampler) sdk.Sampler { return linkSampler{base} }

func (l linkSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	for _, link := range p.Links {
		if link.SpanContext.IsSampled() {
			return sdk.SamplingResult{Decision: sdk.RecordAndSample}
		}
	}
	return l.base.ShouldSample(p)
}

func (l linkSampler) Description() string { return "linked(" + l.base.Description() + ")" }

// logThrottle logs at most one export error per minute.
type logThrottle struct {
	log  *slog.Logger
	last atomic.Int64
}

func (s *logThrottle) Handle(err error) {
	now := time.Now().UnixNano()
	if last := s.last.Load(); now-last >= int64(time.Minute) && s.last.CompareAndSwap(last, now) {
		s.log.Warn("telemetry: export failed; spans are dropped", "err", err)
	}
}
