package api

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout bounds the look into the queue that a scrape costs.
const scrapeTimeout = time.Second

// queueCollector counts the queue when somebody scrapes, and only then.
type queueCollector struct {
	queue                               QueueStats
	messages, leases, oldest, countable *prometheus.Desc
}

// NewQueueCollector makes the gauges of the queue: sluice_queue_messages by place, sluice_queue_leases,
// sluice_queue_oldest_age_seconds, and sluice_queue_up, which is 0, and alone, when the queue could not be counted in time.
func NewQueueCollector(queue QueueStats) prometheus.Collector {
	return &queueCollector{
		queue:     queue,
		messages:  prometheus.NewDesc("sluice_queue_messages", "Accepted orders that are not rows yet, by where they are.", []string{"place"}, nil),
		leases:    prometheus.NewDesc("sluice_queue_leases", "Batches that workers hold.", nil, nil),
		oldest:    prometheus.NewDesc("sluice_queue_oldest_age_seconds", "Age of the oldest order that is not a row yet.", nil, nil),
		countable: prometheus.NewDesc("sluice_queue_up", "Whether the queue could be counted.", nil, nil),
	}
}

func (q *queueCollector) Describe(out chan<- *prometheus.Desc) {
	out <- q.messages
	out <- q.leases
	out <- q.oldest
	out <- q.countable
}

func (q *queueCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	s, err := q.queue.Stats(ctx)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if err != nil {
		gauge(q.countable, 0)
		return
	}
	gauge(q.countable, 1)
	for _, place := range []struct {
		name string
		n    int64
	}{{"ready", s.Ready}, {"delayed", s.Delayed}, {"leased", s.Leased}, {"dead", s.Dead}} {
		gauge(q.messages, float64(place.n), place.name)
	}
	gauge(q.leases, float64(s.Leases))
	gauge(q.oldest, s.OldestAge.Seconds())
}
