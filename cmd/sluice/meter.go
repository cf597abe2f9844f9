package main

import (
	"context"
	"time"
)

// meterEvery is how often the queue's pace is looked at.
const meterEvery = 2 * time.Second

// measure keeps the meters of the queue's pace until ctx ends.
func (b *backend) measure(ctx context.Context) error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		b.measureOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measureOnce leaves the meters as they are when Redis does not answer.
func (b *backend) measureOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, meterEvery)
	defer cancel()
	views, err := b.stock.List(ctx)
	if err != nil {
		return
	}
	b.sales.See(views)
	shards, err := b.stores.shards().ByShard(ctx)
	if err != nil {
		return
	}
	accepted := make([]int64, len(shards))
	for _, v := range views {
		accepted[b.stores.space.ShardOf(v.ID)] += v.Accepted
	}
	for i := range shards {
		b.meters[i].Sample(time.Now(), accepted[i], shards[i])
	}
}
