package admission

import (
	"context"
	"slices"

	"sluice/backend/redis/keyspace"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// ReindexDead makes the index of dead letters agree with the letters, in the shard of a part of a sale, and returns how
// many lines it added or deleted. Scripts maintain the index; ReindexDead repairs it if the shard has lost one of the
// two keys. This can happen when a master fails over while redis-cli moves one of its slots: the new master does not
// know about the move, and lacks the keys that were moved. It takes seconds per million letters, in small steps. It is
// idempotent and can run concurrently. An error wraps sale.ErrUnavailable.
func (s *Stock) ReindexDead(ctx context.Context, of spread.Part) (changed int64, err error) {
	return s.reindexShard(ctx, s.ShardOf(of))
}

// reindexShard adds missing lines, then deletes the lines of deleted letters.
func (s *Stock) reindexShard(ctx context.Context, shard keyspace.Shard) (changed int64, err error) {
	for _, of := range []struct {
		mode string
		scan scanner
		key  string
	}{
		{"letters", s.cfg.Client.HScan, shard.Dead().Letters()},
		{"lines", s.cfg.Client.ZScan, shard.Dead().Index()},
	} {
		err := scanPairs(ctx, of.scan, of.key, func(pairs []string) error {
			for some := range slices.Chunk(pairs, 2*reindexChunk) { // Redis returns a small key completely, whatever the count
				args := []any{of.mode}
				for pair := range slices.Chunk(some, 2) {
					args = append(args, pair[0])
				}
				keys := []string{shard.Dead().Letters(), shard.Dead().Index()}
				n, err := redisscript.Run(ctx, s.cfg.Client, "dead_reindex", keys, args...).Int64()
				if err != nil {
					return err
				}
				changed += n
			}
			return nil
		})
		if err != nil {
			return changed, unavailable("index dead letters", err)
		}
	}
	return changed, nil
}

// reindexChunk is the number of letters per run of the script: a few milliseconds of Redis time.
const reindexChunk = 500
