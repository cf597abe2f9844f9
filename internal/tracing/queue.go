package tracing

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"sluice/internal/metric"
)

// queue passes ended spans to the batch processor of the SDK, which exports them in the background. It counts the spans
// that are dropped because too many wait, which the SDK does not report.
type queue struct {
	sdk.SpanProcessor

	limit   int64
	waiting *atomic.Int64 // spans that have ended and are neither exported nor dropped
	dropped prometheus.Counter
}

// newQueue returns a processor for the exporter with room for limit spans. registry may be nil.
func newQueue(to sdk.SpanExporter, limit int, registry prometheus.Registerer) *queue {
	results := metric.With(registry).Counters("sluice_spans_total",
		"Spans by result: exported, failed (the collector did not accept them), dropped (too many waited).", "result")
	waiting := &atomic.Int64{}
	counted := exporter{SpanExporter: to, waiting: waiting, exported: results.WithLabelValues("exported"),
		failed: results.WithLabelValues("failed")}
	return &queue{
		SpanProcessor: sdk.NewBatchSpanProcessor(counted, sdk.WithMaxQueueSize(limit)),
		limit:         int64(limit), waiting: waiting, dropped: results.WithLabelValues("dropped"),
	}
}

// OnEnd implements sdk.SpanProcessor. It does not block.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.limit {
		q.waiting.Add(-1)
		q.dropped.Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

func (q *queue) full() bool {
	if q.waiting.Load() < q.limit {
		return false
	}
	q.dropped.Inc()
	return true
}

// exporter counts the spans that another exporter exports.
type exporter struct {
	sdk.SpanExporter

	waiting          *atomic.Int64
	exported, failed prometheus.Counter
}

// ExportSpans implements sdk.SpanExporter.
func (e exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.failed.Add(float64(len(spans)))
	} else {
		e.exported.Add(float64(len(spans)))
	}
	return err
}
