package queue

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout bounds how long a scrape counts the queue.
const scrapeTimeout = time.Second

// collector counts the queue on each scrape.
type collector struct {
	shards   Shards
	meters   Meters
	maxReady int64

	messages, leases, oldest, up, bound, drained, drain *prometheus.Desc
}

// NewCollector returns the gauges of the queue. maxReady is the bound of each shard. If the queue cannot be counted
// within a second, sluice_queue_up is 0 and the other gauges except sluice_queue_max_ready are missing.
func NewCollector(shards Shards, meters Meters, maxReady int64) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		shards:   shards,
		meters:   meters,
		maxReady: maxReady,
		messages: desc("sluice_queue_messages", "Accepted orders that are not rows yet, by state.", "shard", "state"),
		leases:   desc("sluice_queue_leases", "Batches that workers hold.", "shard"),
		oldest:   desc("sluice_queue_oldest_age_seconds", "Age of the oldest order that is not a row yet.", "shard"),
		up:       desc("sluice_queue_up", "1 if the queue could be counted, else 0."),
		bound:    desc("sluice_queue_max_ready", "Ready orders per shard at which purchases of its sales get 503."),
		drained: desc(
			"sluice_queue_drained_per_second",
			"Orders that leave the queue per second; NaN while unknown.",
			"shard",
		),
		drain: desc(
			"sluice_queue_drain_seconds",
			"Estimated time until every order accepted so far is a row; +Inf if nothing leaves the queue, NaN while unknown.",
			"shard",
		),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.messages, c.leases, c.oldest, c.up, c.bound, c.drained, c.drain} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.bound, float64(c.maxReady))
	all, err := c.shards.ByShard(ctx)
	if err != nil {
		gauge(c.up, 0)
		return
	}
	gauge(c.up, 1)
	for i, s := range all {
		shard := strconv.Itoa(i)
		gauge(c.messages, float64(s.Ready), shard, "ready")
		gauge(c.messages, float64(s.Delayed), shard, "delayed")
		gauge(c.messages, float64(s.Leased), shard, "leased")
		gauge(c.messages, float64(s.Dead), shard, "dead")
		gauge(c.leases, float64(s.Leases), shard)
		gauge(c.oldest, s.OldestAge.Seconds(), shard)
		pace := c.meters.Shard(i)
		gauge(c.drained, drainedPerSecond(pace), shard)
		gauge(c.drain, drainSeconds(pace), shard)
	}
}

func drainedPerSecond(p Pace) float64 {
	if !p.Known {
		return math.NaN()
	}
	return p.PerSecond
}

func drainSeconds(p Pace) float64 {
	switch {
	case p.Drains:
		return p.Within.Seconds()
	case p.Known:
		return math.Inf(1)
	}
	return math.NaN()
}
