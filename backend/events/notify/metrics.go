package notify

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters implements Metrics with Prometheus.
type Counters struct{ messages *prometheus.CounterVec }

// NewCounters registers the counters. It panics if they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	c := &Counters{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_web_push_messages_total",
		Help: "Attempts to send a Web Push message by outcome: sent, failed (will be retried), gone, refused, given_up.",
	}, []string{"outcome"})}
	for _, outcome := range []string{outcomeSent, outcomeFailed, outcomeGone, outcomeRefused, outcomeGivenUp} {
		c.messages.WithLabelValues(outcome)
	}
	r.MustRegister(c.messages)
	return c
}

// Attempted implements Metrics.
func (c *Counters) Attempted(outcome string) { c.messages.WithLabelValues(outcome).Inc() }

// Waiting counts the messages that have not been sent yet (Store).
type Waiting interface {
	CountWaiting(ctx context.Context) (int64, error)
}

type collector struct {
	waiting Waiting
	gauge   *prometheus.Desc
}

// NewCollector returns the gauge sluice_web_push_waiting. The gauge is absent while the database does not answer.
func NewCollector(w Waiting) prometheus.Collector {
	return &collector{w, prometheus.NewDesc(
		"sluice_web_push_waiting", "Web Push messages that have not been sent yet.", nil, nil,
	)}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) { out <- c.gauge }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n, err := c.waiting.CountWaiting(ctx); err == nil {
		out <- prometheus.MustNewConstMetric(c.gauge, prometheus.GaugeValue, float64(n))
	}
}
