package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/metric"
)

// Metrics are the metrics of the API. They are safe for concurrent use.
type Metrics struct {
	purchases *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	streams   prometheus.Gauge

	streamsLimit prometheus.Gauge
	waiting      prometheus.Gauge
	callbacks    *prometheus.CounterVec
	countedHere  prometheus.Counter // requests that this backend counted alone
}

// NewMetrics registers the metrics with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	metrics := metric.With(reg)
	m := &Metrics{
		purchases: metrics.Counters("sluice_api_purchases_total", "Purchase requests answered, by outcome.", "outcome",
			purchaseOutcomes...),
		seconds: metrics.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_api_purchase_seconds", Help: "Time to answer a purchase request, by outcome.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"outcome"}),
		countedHere: metrics.Counter("sluice_api_user_limit_errors_total",
			"Purchase requests that this backend counted alone because the Redis of the per-user limit was unavailable."),
		streams: metrics.Gauge("sluice_api_event_streams", "Open event streams."),
		streamsLimit: metrics.Gauge("sluice_api_event_streams_limit",
			"Maximum number of open event streams; further clients get 503 and poll instead."),
		waiting: metrics.Gauge("sluice_api_waiting_requests", "Order requests held back until the order is final."),
		callbacks: metrics.Counters("sluice_payment_callbacks_total", "Callbacks of the payment provider, by result.",
			"result", callbackResults...),
	}
	for _, outcome := range purchaseOutcomes {
		m.seconds.WithLabelValues(outcome) // begins at 0, as the counters do
	}
	return m
}

// callbackResults lists the results of callbacks of the payment provider.
var callbackResults = []string{
	string(store.SettledPaid), string(store.SettledFailed), string(store.SettledCancelled),
	string(store.SettledMismatch), string(store.SettledTwice),
	"replayed", "ignored", "not_configured", "forged", "bad_request", "reused", "not_written", "unknown_order",
	"unavailable",
}

// purchaseOutcomes lists the results of buy: the refusals before admission, and the outcomes of admission.
var purchaseOutcomes = func() []string {
	names := []string{"bad_request", "unauthorized", "rate_limited", "unavailable"}
	for _, o := range sale.Outcomes {
		names = append(names, string(o))
	}
	return names
}()

// purchase counts a purchase request. trace is the id of its trace, which becomes the exemplar of its bucket; "": none.
func (m *Metrics) purchase(outcome string, took time.Duration, trace string) {
	m.purchases.WithLabelValues(outcome).Inc()
	seconds := m.seconds.WithLabelValues(outcome)
	if e, ok := seconds.(prometheus.ExemplarObserver); ok && trace != "" {
		e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	seconds.Observe(took.Seconds())
}
