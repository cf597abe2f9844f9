package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Metrics are the counters of the API. One set serves both applications of a process. It is safe for concurrent use.
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
	f := promauto.With(reg)
	m := &Metrics{
		purchases: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_api_purchases_total", Help: "Purchase requests answered, by outcome.",
		}, []string{"outcome"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_api_purchase_seconds", Help: "Time to answer a purchase request, by outcome.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"outcome"}),
		countedHere: f.NewCounter(prometheus.CounterOpts{
			Name: "sluice_api_user_limit_errors_total",
			Help: "Purchase requests that this backend counted alone because the Redis of the per-user limit was unavailable.",
		}),
		streams: f.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_api_event_streams", Help: "Open event streams.",
		}),
		streamsLimit: f.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_api_event_streams_limit",
			Help: "Maximum number of open event streams; further clients get 503 and poll instead.",
		}),
		waiting: f.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_api_waiting_requests", Help: "Order requests held back until the order is final.",
		}),
		callbacks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_payment_callbacks_total", Help: "Callbacks of the payment provider, by result.",
		}, []string{"result"}),
	}
	// Every series begins at 0, so that queries can compute its rate.
	for _, result := range callbackResults {
		m.callbacks.WithLabelValues(result)
	}
	for _, outcome := range purchaseOutcomes {
		m.purchases.WithLabelValues(outcome)
		m.seconds.WithLabelValues(outcome)
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
	for o := sale.Accepted; o <= sale.QueueFull; o++ {
		names = append(names, o.String())
	}
	return names
}()

// purchase counts a purchase request. trace is the id of its trace, or "": the exemplar of its bucket.
func (m *Metrics) purchase(outcome string, took time.Duration, trace string) {
	m.purchases.WithLabelValues(outcome).Inc()
	seconds := m.seconds.WithLabelValues(outcome)
	if e, ok := seconds.(prometheus.ExemplarObserver); ok && trace != "" {
		e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	seconds.Observe(took.Seconds())
}
