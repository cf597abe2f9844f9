package admission

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// readChunk is the number of messages or pairs per read: about a millisecond of Redis time.
const readChunk = 2000

// ranger is LRange or ZRange of a client: it returns the texts of a key at the positions from to to.
type ranger func(ctx context.Context, key string, from, to int64) *redis.StringSliceCmd

// ScanPages calls each for every text of a list or sorted set.
func ScanPages(ctx context.Context, read ranger, key string, each func(text string)) error {
	for from := int64(0); ; from += readChunk {
		texts, err := read(ctx, key, from, from+readChunk-1).Result()
		if err != nil {
			return err
		}
		for _, text := range texts {
			each(text)
		}
		if len(texts) < readChunk {
			return nil
		}
	}
}

// ScanOrders calls each for every text in a stream of orders, oldest first.
func ScanOrders(ctx context.Context, client redisconn.Client, key string, each func(text string)) error {
	for after := "-"; ; {
		entries, err := client.XRangeN(ctx, key, after, "+", readChunk).Result()
		if err != nil {
			return err
		}
		for _, e := range entries {
			each(keyspace.EntryText(e.Values))
		}
		if len(entries) < readChunk {
			return nil
		}
		after = "(" + entries[len(entries)-1].ID
	}
}

// scanner is HScan or ZScan of a client.
type scanner func(ctx context.Context, key string, cursor uint64, match string, count int64) *redis.ScanCmd

// scanPairs calls each for all pairs of a hash or a sorted set, alternating field and value or member and score. It can
// miss pairs that are added or deleted during the scan, and can yield a pair twice.
func scanPairs(ctx context.Context, scan scanner, key string, each func(pairs []string) error) error {
	for cursor := uint64(0); ; {
		pairs, next, err := scan(ctx, key, cursor, "", readChunk).Result()
		if err != nil {
			return err
		}
		if err := each(pairs); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// ScanBuyers calls each for every buyer in the hash key. It can yield a buyer twice, and can miss one that is added
// during the scan. An error wraps sale.ErrUnavailable.
func ScanBuyers(
	ctx context.Context, client redisconn.Client, key string, each func(buyer string, slots keyspace.Slots),
) error {
	err := scanPairs(ctx, client.HScan, key, func(pairs []string) error {
		for pair := range slices.Chunk(pairs, 2) {
			each(pair[0], keyspace.Slots(pair[1]))
		}
		return nil
	})
	if err != nil {
		return unavailable("read "+key, err)
	}
	return nil
}

// ScanDeadLetters calls each for every dead letter of an order in the hash key; backed reports whether the letter holds
// a unit. It can yield a letter twice, and can miss one that is added or deleted during the scan.
func ScanDeadLetters(
	ctx context.Context, client redisconn.Client, key string, each func(m keyspace.Message, backed bool),
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
