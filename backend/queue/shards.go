package queue

import (
	"context"
	"errors"
	"fmt"

	"sluice/backend/sale"
)

// Shard is the part of a shard's queue that Shards reads.
type Shard interface {
	DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error)
	Stats(ctx context.Context) (Stats, error)
}

// Shards combines the queues of all shards, in the order of their numbers.
type Shards []Shard

// DeadLetter returns a dead letter of any shard, or an error that wraps sale.ErrNotFound.
func (s Shards) DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	for _, shard := range s {
		if d, err := shard.DeadLetter(ctx, id); !errors.Is(err, sale.ErrNotFound) {
			return d, err
		}
	}
	return DeadLetter{}, fmt.Errorf("dead letter %s: %w", id, sale.ErrNotFound)
}

// ByShard returns the counts of each shard.
func (s Shards) ByShard(ctx context.Context) ([]Stats, error) {
	all := make([]Stats, len(s))
	for i, shard := range s {
		var err error
		if all[i], err = shard.Stats(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Stats returns the sum over all shards.
func (s Shards) Stats(ctx context.Context) (Stats, error) {
	all, err := s.ByShard(ctx)
	return Sum(all), err
}

// Sum adds the counts of several shards. OldestAge is the maximum.
func Sum(shards []Stats) Stats {
	var sum Stats
	for _, s := range shards {
		sum.Ready += s.Ready
		sum.Delayed += s.Delayed
		sum.Leased += s.Leased
		sum.Leases += s.Leases
		sum.Dead += s.Dead
		sum.OldestAge = max(sum.OldestAge, s.OldestAge)
	}
	return sum
}
