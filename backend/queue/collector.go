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

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descMessages = desc("sluice_queue_messages", "Accepted orders that are not rows yet, by state.", "shard", "state")
	descLeases   = desc("sluice_queue_leases", "Batches that workers hold.", "shard")
	descOldest   = desc("sluice_queue_oldest_age_seconds", "Age of the oldest order that is not a row yet.", "shard")
	descUp       = desc("sluice_queue_up", "1 if the queue could be counted, else 0.")
	descBound    = desc("sluice_queue_max_ready", "Ready orders per shard at which purchases of its sales get 503.")
	descDrained  = desc("sluice_queue_drained_per_second", "Orders that leave the queue per second; NaN while unknown.",
		"shard")
	descDrain = desc("sluice_queue_drain_seconds",
		"Estimated time until every order accepted so far is a row; +Inf if nothing leaves the queue, NaN while unknown.",
		"shard")
)

// collector counts the queue on each scrape.
type collector struct {
	shards   Shards
	meters   Meters
	maxReady int64
}

// NewCollector returns the gauges of the queue. maxReady is the bound of each shard. If the queue cannot be counted
// within a second, sluice_queue_up is 0 and the other gauges except sluice_queue_max_ready are missing.
func NewCollector(shards Shards, meters Meters, maxReady int64) prometheus.Collector {
	return &collector{shards, meters, maxReady}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descMessages, descLeases, descOldest, descUp, descBound, descDrained, descDrain,
	} {
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
	gauge(descBound, float64(c.maxReady))
	all, err := c.shards.ByShard(ctx)
	if err != nil {
		gauge(descUp, 0)
		return
	}
	gauge(descUp, 1)
	for i, s := range all {
		if s == nil {
			gauge(descUp, 0)
			continue
		}
		shard := strconv.Itoa(i)
		gauge(descMessages, float64(s.Ready), shard, "ready")
		gauge(descMessages, float64(s.Delayed), shard, "delayed")
		gauge(descMessages, float64(s.Leased), shard, "leased")
		gauge(descMessages, float64(s.Dead), shard, "dead")
		gauge(descLeases, float64(s.Leases), shard)
		gauge(descOldest, s.OldestAge.Seconds(), shard)
		pace := c.meters.Shard(i)
		drained, drain := math.NaN(), math.NaN()
		if pace.Known {
			drained, drain = pace.PerSecond, math.Inf(1)
		}
		if pace.Drains {
			drain = pace.Within.Seconds()
		}
		gauge(descDrained, drained, shard)
		gauge(descDrain, drain, shard)
	}
}
