// Package trace shows the way of single purchases as OpenTelemetry spans: the request, the decision, the batch in which the order was written, and what told
// others of it. It is off unless an OTLP endpoint is configured: a nil *Tracer does nothing and allocates nothing. Nothing waits for a span, and nothing relies on
// one: what cannot be exported is dropped.
//
// A purchase crosses two queues. What ties the parts together is a note that the admission script leaves beside an order whose trace is sampled
// (keyspace.Shard.Trace): the traceparent under which it was accepted. It expires; the messages of the queue, the rows and the journals know nothing of it.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer begins spans. nil is a Tracer that is off. It is safe for concurrent use.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
}

// exportTimeout bounds the export of what is left when a process ends.
const exportTimeout = 5 * time.Second

// Open makes the tracer of a process from the environment; service is its name unless the environment has another. Without an endpoint it is nil. The error names
// all that is wrong with the environment, in one line. It does not connect: an endpoint that is away is logged, now and then.
func Open(ctx context.Context, getenv func(string) string, service, version string, log *slog.Logger) (*Tracer, error) {
	s, err := readSettings(getenv)
	if err != nil || !s.on {
		return nil, err
	}
	quiet := &logThrottle{log: log}
	otel.SetErrorHandler(quiet)
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(s.endpoint))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithFromEnv()) // last, so that it wins
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("trace: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return New(sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithSampler(linkSampler{s.sampler}), sdk.WithResource(about))), nil
}

// New makes a Tracer of a provider, as tests do. Its sampler must sample what links to a sampled span, as Sampler does.
func New(provider *sdk.TracerProvider) *Tracer {
	return &Tracer{tracer: provider.Tracer("sluice"), provider: provider}
}

// Close exports what is left, within five seconds. A nil Tracer has nothing.
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

// linked samples a span without a parent when one of those that it links to is sampled: a batch is worth showing when one of its orders is. base decides about all others.
type linkSampler struct{ base sdk.Sampler }

// Sampler makes a sampler that base is asked by, and that samples batches with a sampled order.
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

// seldom logs what the exporter complains of, once a minute: it would do so with every batch.
type logThrottle struct {
	log  *slog.Logger
	last atomic.Int64
}

func (s *logThrottle) Handle(err error) {
	now := time.Now().UnixNano()
	if last := s.last.Load(); now-last >= int64(time.Minute) && s.last.CompareAndSwap(last, now) {
		s.log.Warn("traces cannot be exported; they are dropped", "err", err)
	}
}
