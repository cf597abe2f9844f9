package admin

import (
	"errors"
	"maps"
	"slices"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/internal/loop"
)

// concurrentShards bounds the shards that one call uses concurrently.
const concurrentShards = 16

// inShards calls do for the items of each shard, concurrently because a shard that does not respond takes seconds. It
// joins the errors in the order of the shards.
func inShards[T any](byShard map[keyspace.Shard][]T, do func(shard keyspace.Shard, items []T) error) error {
	shards := slices.Sorted(maps.Keys(byShard))
	return errors.Join(loop.Each(shards, concurrentShards, func(_ int, shard keyspace.Shard) error {
		return do(shard, byShard[shard])
	})...)
}

// untilDown calls do for each item of a shard. After an error that concerns the remaining items as well, it skips them
// and returns down as true.
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
