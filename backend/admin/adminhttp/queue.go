package adminhttp

import (
	"context"
	"time"

	"sluice/backend/admin/livestats"
	"sluice/backend/queue"
	"sluice/client"
)

func (h *handlers) queue(ctx context.Context, _ *request) (any, error) {
	stats, err := h.cfg.Queue.ByShard(ctx)
	if err != nil {
		return nil, err
	}
	shards := make([]client.QueueShard, 0, len(stats))
	for i, s := range stats {
		if s == nil { // unavailable
			continue
		}
		pace := h.cfg.Pace.Shard(i, s)
		shard := client.QueueShard{Shard: i, QueueCounts: livestats.Counts(*s)}
		shard.DrainSeconds = drainSeconds(pace.Within, pace.Drains)
		if pace.Known {
			shard.DrainedPerSecond = &pace.PerSecond
		}
		shards = append(shards, shard)
	}
	sum := livestats.Counts(queue.Sum(stats))
	sum.DrainSeconds = drainSeconds(h.cfg.Pace.Within(stats))
	return client.Queue{QueueCounts: sum, MaxReady: h.cfg.MaxReady, Shards: shards}, nil
}

// drainSeconds returns the time until the queue is empty, or nil if it is unknown.
func drainSeconds(d time.Duration, ok bool) *float64 {
	if !ok {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}
