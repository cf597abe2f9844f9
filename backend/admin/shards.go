package admin

import (
	"errors"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
)

// concurrentShards bounds the shards that one call uses concurrently.
const concurrentShards = 16

// inShards calls do for the items of each shard, concurrently because a shard that does not respond takes seconds. It
// joins the errors in the order of the shards.
func inShards[T any](byShard map[keyspace.Shard][]T, do func(shard keyspace.Shard, items []T) error) error {
	shards := slices.Sorted(maps.Keys(byShard))
	failures := make([]error, len(shards))
	var running errgroup.Group
	running.SetLimit(concurrentShards)
	for i, shard := range shards {
		running.Go(func() error { failures[i] = do(shard, byShard[shard]); return nil })
	}
	_ = running.Wait() // the functions return nil
	return errors.Join(failures...)
}

// untilDown calls do for each item of a shard, until an error concerns the remaining ones as well: down.
func untilDown[T any](items []T, do func(T) error) (down bool, err error) {
	var failures []error
	for _, item := range items {
		err := do(item)
		failures = append(failures, err)
		if down = admission.ConcernsOthers(err); down {
			break
		}
	}
	return down, errors.Join(failures...)
}
