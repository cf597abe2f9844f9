package admission

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// ReindexDead makes the index of dead letters agree with the letters, in the shard of one sale, and returns how many
// lines it added or deleted. Scripts maintain the index; ReindexDead repairs it after a process of a version without
// the index added or deleted letters. It takes seconds per million letters, in small steps. It is idempotent and can
// run concurrently. An error wraps sale.ErrUnavailable.
func (s *Stock) ReindexDead(ctx context.Context, saleID string) (changed int64, err error) {
	shard := s.space.ShardOf(saleID)
	added, err := s.indexLetters(ctx, shard)
	if err != nil {
		return added, err
	}
	dropped, err := s.dropStaleLines(ctx, shard)
	return added + dropped, err
}

// indexLetters adds missing lines.
func (s *Stock) indexLetters(ctx context.Context, shard keyspace.Shard) (changed int64, err error) {
	return s.reindexAll(ctx, shard, "letters", s.client.HScan, shard.DeadLetters())
}

// dropStaleLines deletes the lines of deleted letters.
func (s *Stock) dropStaleLines(ctx context.Context, shard keyspace.Shard) (changed int64, err error) {
	return s.reindexAll(ctx, shard, "lines", s.client.ZScan, shard.DeadIndex())
}

func (s *Stock) reindexAll(
	ctx context.Context, shard keyspace.Shard, mode string, scan scanner, key string,
) (changed int64, err error) {
	err = scanPairs(ctx, scan, key, func(pairs []string) error {
		args := []any{mode}
		for pair := range slices.Chunk(pairs, 2) {
			args = append(args, pair[0])
		}
		n, err := s.reindex.Run(ctx, s.client, []string{shard.DeadLetters(), shard.DeadIndex()}, args...).Int64()
		changed += n
		return err
	})
	if err != nil {
		return changed, unavailable("index dead letters", err)
	}
	return changed, nil
}

// scanner is HScan or ZScan of a client.
type scanner func(ctx context.Context, key string, cursor uint64, match string, count int64) *redis.ScanCmd

// reindexChunk is the number of letters per run of the script: a few milliseconds of Redis time.
const reindexChunk = 500

// scanPairs calls each for all pairs of a hash or a sorted set, alternating field and value or member and score, a few
// at a time. It can miss pairs that are added or deleted during the scan.
func scanPairs(ctx context.Context, scan scanner, key string, each func(pairs []string) error) error {
	for cursor := uint64(0); ; {
		pairs, next, err := scan(ctx, key, cursor, "", reindexChunk).Result()
		if err != nil {
			return err
		}
		for some := range slices.Chunk(pairs, 2*reindexChunk) { // Redis returns a small hash completely
			if err := each(some); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// ScanDeadLetters calls each for every dead letter of an order in the hash key; backed reports whether the letter holds
// a unit. It can yield a letter twice, and can miss one that is added or deleted during the scan.
func ScanDeadLetters(
	ctx context.Context, client redis.UniversalClient, key string, each func(m keyspace.Message, backed bool),
) error {
	return scanPairs(ctx, client.HScan, key, func(pairs []string) error {
		for pair := range slices.Chunk(pairs, 2) {
			var letter struct{ Message, Unit string }
			if json.Unmarshal([]byte(pair[1]), &letter) != nil {
				continue
			}
			if m, err := keyspace.DecodeMessage(letter.Message); err == nil {
				each(m, letter.Unit != "none")
			}
		}
		return nil
	})
}
