// Package tracing exports OpenTelemetry spans over OTLP, as OpenTelemetry's standard variables configure it. It is off
// unless an endpoint is configured. Spans never delay a request: a span that does not fit into the queue, or cannot be
// exported, is dropped and counted.
//
// Packages backend/telemetry and internal/edgetrace define the spans.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
)

// Config configures a Provider. All fields are required unless marked optional.
type Config struct {
	Getenv   func(string) string
	Service  string // default of the service's name
	Version  string // of the program
	Log      *slog.Logger
	Registry prometheus.Registerer // optional
}

// Provider exports the spans of a process. A nil Provider is off. It is safe for concurrent use.
type Provider struct {
	*sdk.TracerProvider

	Sampling Sampling // of traces that begin in this process
	Version  string   // of the program

	queue *queue // nil: spans are not queued
}

// exportTimeout bounds the last export of a process.
const exportTimeout = 5 * time.Second

// Open returns the Provider that the environment configures, or nil without an endpoint. The error lists every invalid
// variable. Open does not connect; failed exports are logged once a minute.
func Open(ctx context.Context, c Config) (*Provider, error) {
	s, err := readSettings(c.Getenv)
	if err != nil || !s.on {
		return nil, err
	}
	otel.SetErrorHandler(logErrors(c.Log))
	exporter, err := otlptrace.New(ctx, newUploader(s))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", c.Service),
			attribute.String("service.version", c.Version), attribute.String("service.instance.id", uuid.NewString())),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithFromEnv()) // last, so that it overrides the others
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return New(newQueue(exporter, s.queue, c.Registry), s.sampling, c.Version, about), nil
}

// New returns a Provider that passes spans to a processor. about describes the process; it may be nil.
func New(to sdk.SpanProcessor, sampling Sampling, version string, about *resource.Resource) *Provider {
	q, _ := to.(*queue)
	return &Provider{
		TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(to), sdk.WithSampler(sampling.Sampler()),
			sdk.WithIDGenerator(ids{}), sdk.WithResource(about)),
		Sampling: sampling, Version: version, queue: q,
	}
}

// Full reports whether a span would be dropped because too many wait. If it returns true, it has counted a span as
// dropped, and the caller need not create it.
func (p *Provider) Full() bool { return p.queue != nil && p.queue.full() }

// Close exports the remaining spans, within five seconds.
func (p *Provider) Close() {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// maxError bounds the logged bytes of an export error, which contains up to maxAnswer bytes of the collector's answer.
const maxError = 500

// logErrors returns a handler that logs at most one export error per minute.
func logErrors(log *slog.Logger) otel.ErrorHandlerFunc {
	limiter := rate.NewLimiter(rate.Every(time.Minute), 1)
	return func(err error) {
		if text := err.Error(); limiter.Allow() {
			if len(text) > maxError {
				text = strings.ToValidUTF8(text[:maxError], "") + "..."
			}
			log.Warn("telemetry: export failed; spans are dropped", "err", text)
		}
	}
}
