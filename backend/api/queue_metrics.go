package api

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/queue"
)

// scrapeTimeout bounds the look into the queue that a scrape costs.
const scrapeTimeout = time.Second

// queueCollector counts the queue when somebody scrapes, and only then.
type queueCollector struct {
	queue QueueStats
	pace  Pace
	most  int64

	messages, leases, oldest, countable, bound, drained, drain *prometheus.Desc
}

// NewQueueCollector makes the gauges of the queue, by shard: sluice_queue_messages by place, sluice_queue_leases, sluice_queue_oldest_age_seconds,
// sluice_queue_drained_per_second, sluice_queue_drain_seconds; and sluice_queue_max_ready, the bound of each shard. sluice_queue_up is 0, and alone with the bound, when
// the queue could not be counted in time.
func NewQueueCollector(queue QueueStats, pace Pace, maxReady int64) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &queueCollector{
		queue: queue, pace: pace, most: maxReady,
		messages:  desc("sluice_queue_messages", "Accepted orders that are not rows yet, by where they are.", "shard", "place"),
		leases:    desc("sluice_queue_leases", "Batches that workers hold.", "shard"),
		oldest:    desc("sluice_queue_oldest_age_seconds", "Age of the oldest order that is not a row yet.", "shard"),
		countable: desc("sluice_queue_up", "Whether the queue could be counted."),
		bound:     desc("sluice_queue_max_ready", "Ready orders of one shard at which purchases of its sales are answered 503."),
		drained:   desc("sluice_queue_drained_per_second", "Orders that leave the queue in a second, over the last while; NaN while it is not known.", "shard"),
		drain: desc("sluice_queue_drain_seconds",
			"Every order accepted by now is in SQL within so many seconds at the present pace; +Inf when nothing leaves the queue, NaN while the pace is not known.", "shard"),
	}
}

func (q *queueCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{q.messages, q.leases, q.oldest, q.countable, q.bound, q.drained, q.drain} {
		out <- d
	}
}

func (q *queueCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	shards, err := q.queue.ByShard(ctx)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(q.bound, float64(q.most))
	if err != nil {
		gauge(q.countable, 0)
		return
	}
	gauge(q.countable, 1)
	for i, s := range shards {
		shard := strconv.Itoa(i)
		for _, place := range []struct {
			name string
			n    int64
		}{{"ready", s.Ready}, {"delayed", s.Delayed}, {"leased", s.Leased}, {"dead", s.Dead}} {
			gauge(q.messages, float64(place.n), shard, place.name)
		}
		gauge(q.leases, float64(s.Leases), shard)
		gauge(q.oldest, s.OldestAge.Seconds(), shard)
		pace := q.pace.Shard(i)
		gauge(q.drained, drained(pace), shard)
		gauge(q.drain, drainSeconds(pace), shard)
	}
}

func drained(p queue.Pace) float64 {
	if !p.Known {
		return math.NaN()
	}
	return p.PerSecond
}

func drainSeconds(p queue.Pace) float64 {
	switch {
	case p.Drains:
		return p.Within.Seconds()
	case p.Known:
		return math.Inf(1)
	}
	return math.NaN()
}
