package events

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
)

// Counters counts events in Prometheus.
type Counters struct {
	deliveries *prometheus.CounterVec
	relayed    prometheus.Counter
}

// NewCounters registers the counters with r, which may be nil. It panics if they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	metrics := metric.With(r)
	return &Counters{
		deliveries: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_event_deliveries_total",
			Help: "Events delivered to this process, by outcome: done, failed, dead, or waiting for a store.",
		}, []string{"group", "outcome"}),
		relayed: metrics.Counter("sluice_event_relayed_total", "Events that this process has moved from SQL to the stream."),
	}
}

// deliver counts n deliveries by their outcome: done, failed, dead or waiting (a store was unavailable).
func (c *Counters) deliver(group, outcome string, n int) {
	c.deliveries.WithLabelValues(group, outcome).Add(float64(n))
}

// NewCollector returns the gauges of the events. If they cannot be read in time, it exports only sluice_event_up, which
// is 0.
func NewCollector(admin *Admin) prometheus.Collector {
	read := func(ctx context.Context, set metric.SetGauge) error {
		s, err := admin.Status(ctx)
		if err != nil {
			return err
		}
		set("stream_entries", "Events in the stream.", float64(s.Stream))
		set("unrelayed_seconds", "Age of the oldest event that is not in the stream yet.", s.UnrelayedSeconds)
		for _, g := range s.Groups {
			set("lag", "Events in the stream that have not been delivered to the group.", float64(g.Lag), g.Name)
			set("pending", "Events that were delivered to the group and are not acknowledged.", float64(g.Pending), g.Name)
			set("oldest_seconds", "Age of the oldest event in the stream that the group has not acknowledged.",
				g.OldestSeconds, g.Name)
			set("dead", "Dead letters of the group.", float64(g.Dead), g.Name)
			set("consumers", "Consumers of the group in Redis.", float64(g.Consumers), g.Name)
		}
		return nil
	}
	return metric.Collector{Prefix: "sluice_event_", Labels: []string{"group"}, Read: read}
}
