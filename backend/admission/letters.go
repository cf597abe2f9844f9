package admission

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// readDead reads the lines of every sale with dead letters that hold a unit; its census tells how many there are.
func (s *snapshot) readDead(ctx context.Context, client redis.UniversalClient, ids []string, censuses map[string]*UnitCount) error {
	for i, saleID := range ids {
		census := censuses[saleID]
		for from := int64(0); from < census.lines; from += readChunk {
			lines, err := client.ZRange(ctx, s.lines[i], from, from+readChunk-1).Result()
			if err != nil {
				return err
			}
			for _, line := range lines {
				if d, err := keyspace.DecodeDeadLine(line); err == nil {
					census.add(dead, d.Message)
				}
			}
		}
	}
	return nil
}

// ListDead makes the list by sale of dead letters agree with the letters, in the shard of one sale, and tells how many lines it has put there or removed. Scripts keep the
// list; it is made here where a version without one has written letters, or removed some: seconds per million letters, in small pieces. It may be repeated, and done by
// several at once. An error wraps sale.ErrUnavailable.
func (s *Stock) ReindexDead(ctx context.Context, saleID string) (changed int64, err error) {
	shard := s.space.ShardOf(saleID)
	put, err := s.indexLetters(ctx, shard)
	if err != nil {
		return put, err
	}
	dropped, err := s.dropStaleLines(ctx, shard)
	return put + dropped, err
}

// listLetters puts the lines there that are missing.
func (s *Stock) indexLetters(ctx context.Context, shard keyspace.Shard) (changed int64, err error) {
	err = scanPairs(ctx, s.client.HScan, shard.DeadLetters(), func(pairs []string) error { return s.reindexSome(ctx, shard, "letters", pairs, &changed) })
	if err != nil {
		return changed, unavailable("list dead letters", err)
	}
	return changed, nil
}

// dropLines removes the lines of letters that are gone.
func (s *Stock) dropStaleLines(ctx context.Context, shard keyspace.Shard) (changed int64, err error) {
	err = scanPairs(ctx, s.client.ZScan, shard.DeadIndex(), func(pairs []string) error { return s.reindexSome(ctx, shard, "lines", pairs, &changed) })
	if err != nil {
		return changed, unavailable("list dead letters", err)
	}
	return changed, nil
}

func (s *Stock) reindexSome(ctx context.Context, shard keyspace.Shard, what string, pairs []string, changed *int64) error {
	args := []any{what}
	for pair := range slices.Chunk(pairs, 2) {
		args = append(args, pair[0])
	}
	n, err := s.list.Run(ctx, s.client, []string{shard.DeadLetters(), shard.DeadIndex()}, args...).Int64()
	*changed += n
	return err
}

// listingChunk is how many letters are listed by one run of the script: a few milliseconds of Redis's time.
const reindexChunk = 500

// scanPairs calls each for all that a hash or a sorted set holds, field and value or member and score by turns, a few at a time. What comes or goes meanwhile may be missed.
func scanPairs(ctx context.Context, scan func(ctx context.Context, key string, cursor uint64, match string, count int64) *redis.ScanCmd, key string, each func(pairs []string) error) error {
	for cursor := uint64(0); ; {
		pairs, next, err := scan(ctx, key, cursor, "", reindexChunk).Result()
		if err != nil {
			return err
		}
		for some := range slices.Chunk(pairs, 2*reindexChunk) { // a small hash comes as a whole
			if err := each(some); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// ScanLetters calls each for every dead letter of an order in the hash key; backed tells whether it holds a unit. A letter can come twice; one that comes or
// goes meanwhile may be missed.
func ScanDeadLetters(ctx context.Context, client redis.UniversalClient, key string, each func(m keyspace.Message, backed bool)) error {
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
