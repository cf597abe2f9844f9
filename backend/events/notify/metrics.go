package notify

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
)

// newAttempts registers the counters of attempts.
func newAttempts(r prometheus.Registerer) *prometheus.CounterVec {
	return metric.With(r).Counters("sluice_web_push_messages_total",
		"Attempts to send a Web Push message by outcome: sent, failed (will be retried), gone, refused, given_up.",
		"outcome", string(Sent), string(Failed), string(Gone), string(Refused), string(GivenUp))
}

// NewCollector returns the gauge sluice_web_push_waiting. sluice_web_push_up is 0, and alone, while the database does
// not answer.
func NewCollector(db *Store) prometheus.Collector {
	return metric.Collector{Prefix: "sluice_web_push_", Read: func(ctx context.Context, set metric.SetGauge) error {
		n, err := db.CountWaiting(ctx)
		if err == nil {
			set("waiting", "Web Push messages that have not been sent yet.", float64(n))
		}
		return err
	}}
}
