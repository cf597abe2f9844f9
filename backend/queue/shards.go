package queue

import (
	"context"
	"errors"
	"slices"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

// Shard is the part of a shard's queue that Shards reads.
type Shard interface {
	DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error)
	Dead(ctx context.Context, ids []sale.OrderID) ([]sale.OrderID, error)
	Empty(ctx context.Context) (bool, error)
	Stats(ctx context.Context) (Stats, error)
}

// Shards combines the queues of all shards, in the order of their numbers.
type Shards []Shard

// shardOf returns the number of the shard that allocated an order's id, which queues the order.
func (s Shards) shardOf(id sale.OrderID) int {
	return int(keyspace.Space{Shards: len(s)}.ShardOfOrder(id))
}

// DeadLetter returns the dead letter of an order from the shard of the order; see List.DeadLetter.
func (s Shards) DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	return s[s.shardOf(id)].DeadLetter(ctx, id)
}

// Empty reports that no order waits for a worker in the shard of an order; see List.Empty.
func (s Shards) Empty(ctx context.Context, id sale.OrderID) (bool, error) {
	return s[s.shardOf(id)].Empty(ctx)
}

// Dead calls yield for those of the orders that are dead. It omits the orders of shards that are unavailable. It reads
// all shards concurrently and calls yield for each shard when it has responded, also concurrently.
func (s Shards) Dead(ctx context.Context, ids []sale.OrderID, yield func(sale.OrderID)) {
	byShard := make([][]sale.OrderID, len(s))
	for _, id := range ids {
		shard := s.shardOf(id)
		byShard[shard] = append(byShard[shard], id)
	}
	loop.Each(byShard, -1, func(i int, ids []sale.OrderID) error {
		if len(ids) > 0 {
			dead, _ := s[i].Dead(ctx, ids) // after an error, those found before
			for _, id := range dead {
				yield(id)
			}
		}
		return nil
	})
}

// ByShard returns the counts of each shard; nil for a shard that is unavailable. It returns an error if all are. It
// reads all concurrently, so that one that does not respond delays the others once.
func (s Shards) ByShard(ctx context.Context) ([]*Stats, error) {
	all := make([]*Stats, len(s))
	errs := loop.Each(s, -1, func(i int, shard Shard) error {
		one, err := shard.Stats(ctx)
		if err == nil {
			all[i] = &one
		}
		return err
	})
	if !slices.Contains(errs, nil) {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// Sum returns the sum of the counts of several shards, with the maximum of OldestAge. It skips nil.
func Sum(shards []*Stats) Stats {
	var sum Stats
	for _, s := range shards {
		if s == nil {
			continue
		}
		sum.Ready += s.Ready
		sum.Delayed += s.Delayed
		sum.Leased += s.Leased
		sum.Leases += s.Leases
		sum.Dead += s.Dead
		sum.OldestAge = max(sum.OldestAge, s.OldestAge)
	}
	return sum
}
