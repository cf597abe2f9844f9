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

// listShards returns every shard. The counts of an unavailable shard are unknown.
func (h *handlers) listShards(ctx context.Context, _ *request) (any, error) {
	all := h.cfg.Shards(ctx)
	stats, _ := h.cfg.Queue.ByShard(ctx) // an unavailable shard has none
	shards := make([]client.Shard, len(all))
	for i, s := range all {
		one := client.Shard{
			Shard: int(s.Shard), Master: s.Master, Verified: s.Verified, Reason: s.Reason, Generation: s.Generation,
		}
		if s.Slot >= 0 {
			one.Slot = &s.Slot
		}
		if s.Sales >= 0 {
			one.Sales = &s.Sales
		}
		if i < len(stats) && stats[i] != nil {
			one.Ready, one.Leased, one.Dead = &stats[i].Ready, &stats[i].Leased, &stats[i].Dead
		}
		shards[i] = one
	}
	return map[string]any{"shards": shards}, nil
}
