package queue

import (
	"context"
	"errors"
	"slices"
	"sync"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Shard is the part of a shard's queue that Shards reads.
type Shard interface {
	DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error)
	Stats(ctx context.Context) (Stats, error)
}

// Shards combines the queues of all shards, in the order of their numbers.
type Shards []Shard

// DeadLetter returns the dead letter of an order from the shard that allocated its id; see List.DeadLetter.
func (s Shards) DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	return s[keyspace.Space{Shards: len(s)}.ShardOfOrder(id)].DeadLetter(ctx, id)
}

// ByShard returns the counts of each shard; nil for a shard that is unavailable. It returns an error if all are.
func (s Shards) ByShard(ctx context.Context) ([]*Stats, error) {
	all, errs := s.read(ctx)
	if !slices.Contains(errs, nil) {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// Stats returns the sum over all shards, or an error if one is unavailable.
func (s Shards) Stats(ctx context.Context) (Stats, error) {
	all, errs := s.read(ctx)
	return Sum(all), errors.Join(errs...)
}

// read reads all shards concurrently, so that one that does not respond delays the others once.
func (s Shards) read(ctx context.Context) ([]*Stats, []error) {
	all, errs := make([]*Stats, len(s)), make([]error, len(s))
	var wg sync.WaitGroup
	for i, shard := range s {
		wg.Go(func() {
			if one, err := shard.Stats(ctx); err != nil {
				errs[i] = err
			} else {
				all[i] = &one
			}
		})
	}
	wg.Wait()
	return all, errs
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
