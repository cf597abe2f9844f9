package admission

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// ScanOrders calls each for every entry of a stream of orders, oldest first, with its id and text.
func ScanOrders(ctx context.Context, client redis.UniversalClient, key string, each func(id, text string)) error {
	for after := "-"; ; {
		reply, err := client.Do(ctx, "XRANGE", key, after, "+", "COUNT", readChunk).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		entries, err := keyspace.DecodeEntries(reply)
		if err != nil {
			return err
		}
		for _, e := range entries {
			each(e.ID, e.Text)
		}
		if len(entries) < readChunk {
			return nil
		}
		after = "(" + entries[len(entries)-1].ID
	}
}

// readStream reads the copy of the stream. Entries up to s.leased are leased, later ones are ready.
func (s *snapshot) readStream(
	ctx context.Context, client redis.UniversalClient, each func(queuePart, keyspace.Message),
) error {
	return ScanOrders(ctx, client, s.orders, func(id, text string) {
		m, err := keyspace.DecodeMessage(text)
		switch {
		case err != nil: // not a message; the worker makes it a dead letter
		case s.leased != "" && !entryAfter(id, s.leased):
			each(leased, m)
		default:
			each(ready, m)
		}
	})
}

// entryAfter reports whether entry id a follows b. Ids have the form "<ms>-<n>".
func entryAfter(a, b string) bool {
	am, an := entryID(a)
	bm, bn := entryID(b)
	return am > bm || am == bm && an > bn
}

func entryID(id string) (ms, n uint64) {
	head, tail, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(head, 10, 64) // Redis generated it
	n, _ = strconv.ParseUint(tail, 10, 64)
	return ms, n
}
