package webhook

import (
	"context"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
)

// Counters counts webhooks in Prometheus.
type Counters struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	added    prometheus.Counter
}

// NewCounters registers the counters with r, which may be nil. It panics if they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	metrics := metric.With(r)
	return &Counters{
		attempts: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_webhook_attempts_total",
			Help: "Attempts of this process to send a webhook, by outcome: delivered, failed, given_up, released (interrupted by a " +
				"stop) or lost (another process has leased it since).",
		}, []string{"endpoint", "outcome"}),
		seconds: metrics.Histogram("sluice_webhook_attempt_seconds",
			"Duration of an attempt, until the response or the failure.",
			.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30),
		added: metrics.Counter("sluice_webhook_deliveries_total",
			"Deliveries that this process has written, one for each event and endpoint."),
	}
}

// Added counts deliveries that were written.
func (c *Counters) Added(n int64) { c.added.Add(float64(n)) }

// attempted counts an attempt at an endpoint by its outcome.
func (c *Counters) attempted(endpoint, outcome string) {
	c.attempts.WithLabelValues(endpoint, outcome).Inc()
}

// NewCollector returns the gauges of the endpoints. If they cannot be read in time, sluice_webhook_up is 0 and others
// are missing. The counts of deliveries come last, because those of a large backlog take long.
func NewCollector(admin *Admin) prometheus.Collector {
	read := func(ctx context.Context, set metric.SetGauge) error {
		all, err := admin.Endpoints(ctx)
		if err != nil {
			return err
		}
		for _, e := range all {
			failing := 0.0
			if !e.FailingSince.IsZero() || e.State == EndpointDisabled {
				failing = 1
			}
			set("failing", "Whether the endpoint fails: 1 from when a delivery is given up, or many attempts in a row have "+
				"failed, until one succeeds; or it is disabled.", failing, e.ID)
		}
		for _, e := range all {
			if err := admin.count(ctx, &e, math.MaxInt64); err != nil {
				return err
			}
			set("waiting", "Deliveries that are not delivered yet.", float64(e.Waiting), e.ID)
			set("failed", "Deliveries that were given up.", float64(e.Failed), e.ID)
			set("oldest_seconds", "Age of the oldest delivery that is not delivered yet.", e.Oldest.Seconds(), e.ID)
		}
		return nil
	}
	return metric.Collector{Prefix: "sluice_webhook_", Labels: []string{"endpoint"}, Read: read}
}
