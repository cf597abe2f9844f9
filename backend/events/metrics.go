package events

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters is Metrics in Prometheus, and counts what is relayed.
type Counters struct {
	deliveries *prometheus.CounterVec
	relayed    prometheus.Counter
}

// NewCounters registers the counters. It panics when they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	c := &Counters{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_event_deliveries_total",
			Help: "Events given to this process, by what became of them: done, failed, dead, or waiting for a store.",
		}, []string{"group", "outcome"}),
		relayed: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "sluice_event_relayed_total",
				Help: "Events that this process has moved from SQL to the stream.",
			},
		),
	}
	r.MustRegister(c.deliveries, c.relayed)
	return c
}

// Delivered is Metrics.
func (c *Counters) Delivered(group, outcome string, n int) {
	c.deliveries.WithLabelValues(group, outcome).Add(float64(n))
}

// Relayed is for RelayConfig.Relayed.
func (c *Counters) Relayed(events int) { c.relayed.Add(float64(events)) }

// scrapeTimeout bounds the look that a scrape costs.
const scrapeTimeout = time.Second

type collector struct {
	desk                                                    *Admin
	up, stream, unrelayed, lag, pending, oldest, dead, size *prometheus.Desc
}

// NewCollector makes the gauges of the events: sluice_event_stream_entries, sluice_event_unrelayed_seconds, and by
// group sluice_event_lag, sluice_event_pending, sluice_event_oldest_seconds, sluice_event_dead and
// sluice_event_consumers. sluice_event_up is 0, and alone, when they could not be read in time.
func NewCollector(admin *Admin) prometheus.Collector {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_event_"+name, help, labels, nil)
	}
	return &collector{
		desk:      admin,
		up:        gauge("up", "Whether the events could be looked at."),
		stream:    gauge("stream_entries", "Events in the stream."),
		unrelayed: gauge("unrelayed_seconds", "Age of the oldest event that is not in the stream yet."),
		lag:       gauge("lag", "Events in the stream that the group was not given yet.", "group"),
		pending:   gauge("pending", "Events that the group was given and has not acknowledged.", "group"),
		oldest: gauge(
			"oldest_seconds",
			"Age of the oldest event in the stream that the group has not acknowledged.",
			"group",
		),
		dead: gauge("dead", "Dead letters of the group.", "group"),
		size: gauge("consumers", "Consumers of the group that Redis knows.", "group"),
	}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.stream, c.unrelayed, c.lag, c.pending, c.oldest, c.dead, c.size} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s, err := c.desk.Status(ctx)
	if err != nil {
		gauge(c.up, 0)
		return
	}
	gauge(c.up, 1)
	gauge(c.stream, float64(s.Stream))
	gauge(c.unrelayed, s.Unrelayed.Seconds())
	for _, g := range s.Groups {
		gauge(c.lag, float64(g.Lag), g.Name)
		gauge(c.pending, float64(g.Pending), g.Name)
		gauge(c.oldest, g.Oldest.Seconds(), g.Name)
		gauge(c.dead, float64(g.Dead), g.Name)
		gauge(c.size, float64(g.Consumers), g.Name)
	}
}
