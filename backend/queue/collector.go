package queue

import (
	"context"
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/sale"
	"sluice/internal/metric"
)

// NewCollector returns the gauges of the queue. maxReady is the bound of each shard. If a shard cannot be counted
// within a second, sluice_queue_up is 0 and the other gauges of the shard are missing.
func NewCollector(shards Shards, meters Meters, maxReady int64) prometheus.Collector {
	read := func(ctx context.Context, set metric.SetGauge) error {
		set("max_ready", "Ready orders per shard at which purchases of its sales get 503.", float64(maxReady))
		all, err := shards.ByShard(ctx)
		for i, s := range all {
			if s == nil {
				err = sale.ErrUnavailable
				continue
			}
			setShard(set, strconv.Itoa(i), *s, meters.Shard(i, s))
		}
		return err
	}
	return metric.Collector{Prefix: "sluice_queue_", Labels: []string{"shard", "state"}, Read: read}
}

// setShard sets the gauges of one shard.
func setShard(set metric.SetGauge, shard string, s Stats, pace Pace) {
	const messages = "Accepted orders that are not rows yet, by state."
	set("messages", messages, float64(s.Ready), shard, "ready")
	set("messages", messages, float64(s.Delayed), shard, "delayed")
	set("messages", messages, float64(s.Leased), shard, "leased")
	set("messages", messages, float64(s.Dead), shard, "dead")
	set("leases", "Batches that workers hold.", float64(s.Leases), shard)
	set("oldest_age_seconds", "Age of the oldest order that is not a row yet.", s.OldestAge.Seconds(), shard)
	drained, drain := math.NaN(), math.NaN()
	if pace.Known {
		drained, drain = pace.PerSecond, math.Inf(1)
	}
	if pace.Drains {
		drain = pace.Within.Seconds()
	}
	set("drained_per_second", "Orders that leave the queue per second; NaN while unknown.", drained, shard)
	set("drain_seconds", "Estimated time until every order accepted so far is a row; +Inf if nothing leaves the queue, "+
		"NaN while unknown.", drain, shard)
}
