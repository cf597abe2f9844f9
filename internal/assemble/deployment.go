package assemble

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// checkDeployment returns a UsageError if the data in Redis was not made from this database: Redis has a sale that the
// database does not have, or a later generation of a shard. A shard that does not respond is not compared.
func (s *Stores) checkDeployment(ctx context.Context) error {
	inRedis := make([]shardContent, len(s.space.All()))
	var reads sync.WaitGroup
	for i, shard := range s.space.All() {
		reads.Go(func() { inRedis[i] = s.readShard(ctx, shard) })
	}
	reads.Wait()
	// SQL is read after Redis: it has every sale, and every generation, before Redis.
	all, err := s.sales.SaleSummaries(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, one := range all {
		known[one.ID] = true
	}
	const remedy = "name the database and the Redis of the same deployment; after a restore from a backup, "
	for i, shard := range s.space.All() {
		for _, id := range inRedis[i].sales {
			if !known[id] && !sale.IsRehearsal(id) { // a rehearsal is removed from SQL first
				return usage("--database does not have the sale %s, which is in shard %d of --redis: %screate the sale again, "+
					"and run sluice sale rebuild --all first", id, shard, remedy)
			}
		}
		generation, err := s.generations.Generation(ctx, int(shard))
		if err != nil {
			return err
		}
		if have := inRedis[i].generation; have > generation {
			return usage("shard %d has generation %d in --redis and %d in --database: %srun sluice sale rebuild --all first",
				shard, have, generation, remedy)
		}
	}
	return nil
}

// shardContent is what Redis has of a shard; zero if Redis does not respond.
type shardContent struct {
	generation int64
	sales      []string
}

func (s *Stores) readShard(ctx context.Context, shard keyspace.Shard) (c shardContent) {
	raw := s.guards.Of(shard).Raw()
	generation, err := raw.HGet(ctx, shard.Guard(), "generation").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return shardContent{}
	}
	c.generation = generation
	c.sales, _ = raw.SMembers(ctx, shard.Sales()).Result()
	return c
}
