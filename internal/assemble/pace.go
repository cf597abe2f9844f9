package assemble

import (
	"context"
	"time"
)

// meterEvery is how often the pace of the queue is measured.
const meterEvery = 2 * time.Second

// measure updates the meters of the queue until ctx ends. They keep their values while Redis does not respond.
func (b *Backend) measure(ctx context.Context) error {
	every(ctx, meterEvery, func() {
		ctx, cancel := context.WithTimeout(ctx, meterEvery)
		defer cancel()
		views, err := b.Stock.List(ctx)
		if err != nil {
			return
		}
		b.sales.Set(views)
		shards, err := b.stores.shards.ByShard(ctx)
		if err != nil {
			return
		}
		accepted := make([]int64, len(shards))
		for _, v := range views {
			if len(v.Segments) == 0 {
				accepted[b.stores.space.ShardOf(v.ID)] += v.Accepted
			}
			for _, segment := range v.Segments {
				accepted[segment.Shard] += segment.Accepted
			}
		}
		for i, one := range shards {
			if one != nil {
				b.meters[i].Sample(time.Now(), accepted[i], *one)
			}
		}
	})
	return nil
}
