package adminhttp

import (
	"context"

	"sluice/client"
)

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
