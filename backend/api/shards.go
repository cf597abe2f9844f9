package api

import (
	"context"
	"errors"
	"fmt"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// Shards are the queues of all shards, seen as one.
type Shards []DeadLetters

// DeadLetter finds a dead letter in whatever shard it is. It returns sale.ErrNotFound.
func (l Shards) DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	for _, shard := range l {
		if d, err := shard.DeadLetter(ctx, id); !errors.Is(err, sale.ErrNotFound) {
			return d, err
		}
	}
	return queue.DeadLetter{}, fmt.Errorf("dead letter %s: %w", id, sale.ErrNotFound)
}

// ByShard counts the shards one after the other.
func (l Shards) ByShard(ctx context.Context) ([]queue.Stats, error) {
	all := make([]queue.Stats, len(l))
	for i, shard := range l {
		var err error
		if all[i], err = shard.Stats(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Stats adds the shards up; the oldest age is that of the worst.
func (l Shards) Stats(ctx context.Context) (queue.Stats, error) {
	all, err := l.ByShard(ctx)
	return sumOf(all), err
}

func sumOf(shards []queue.Stats) queue.Stats {
	var sum queue.Stats
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
