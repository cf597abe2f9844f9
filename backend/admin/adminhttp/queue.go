package adminhttp

import (
	"context"

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
		if s == nil {
			continue
		}
		pace := h.cfg.Pace.Shard(i, s)
		shard := client.QueueShard{Shard: i, QueueCounts: livestats.Counts(*s)}
		shard.DrainSeconds = livestats.DrainSeconds(pace.Within, pace.Drains)
		if pace.Known {
			shard.DrainedPerSecond = &pace.PerSecond
		}
		shards = append(shards, shard)
	}
	sum := livestats.Counts(queue.Sum(stats))
	sum.DrainSeconds = livestats.DrainSeconds(h.cfg.Pace.Within(stats))
	return client.Queue{
		QueueCounts: sum, MaxReady: h.cfg.MaxReady, Shards: shards, Unavailable: livestats.Unavailable(stats),
	}, nil
}
