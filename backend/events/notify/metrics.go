package notify

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters is Metrics in Prometheus.
type Counters struct{ messages *prometheus.CounterVec }

// NewCounters registers the counters. It panics when they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	c := &Counters{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_notify_messages_total", Help: "Attempts to send a message, by channel and outcome: sent, failed (tried again), dead, gone, refused, given_up.",
	}, []string{"channel", "outcome"})}
	r.MustRegister(c.messages)
	return c
}

// Pushed is Metrics.
func (c *Counters) Pushed(channel, outcome string) {
	c.messages.WithLabelValues(channel, outcome).Inc()
}

// Waiting tells how many messages each channel has still to send (order.Store).
type Waiting interface {
	CountWaiting(ctx context.Context) (map[string]int64, error)
}

type collector struct {
	waiting  Waiting
	channels []string
	gauge    *prometheus.Desc
}

// NewCollector makes the gauge sluice_notify_waiting_messages, by channel: of these channels, and of others for which something waits. It is missing while the database does not answer.
func NewCollector(w Waiting, channels ...string) prometheus.Collector {
	return &collector{w, channels, prometheus.NewDesc("sluice_notify_waiting_messages", "Messages that are still to be sent.", []string{"channel"}, nil)}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) { out <- c.gauge }

func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	counts, err := c.waiting.CountWaiting(ctx)
	if err != nil {
		return
	}
	for _, channel := range c.channels {
		counts[channel] += 0
	}
	for channel, n := range counts {
		out <- prometheus.MustNewConstMetric(c.gauge, prometheus.GaugeValue, float64(n), channel)
	}
}
