package rebuild_test

import (
	"errors"
	"strings"
	"testing"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// A rebuild that finds a key of the wrong type names the key, its sale and the remedy, and the shard stays held. After
// the remedy, a rebuild restores the sale from SQL and the queue.
func TestRebuildNamesKeysOfTheWrongType(t *testing.T) {
	shard := keyspace.Shard(0)
	for key, about := range map[string]string{
		shard.Sale("s"):   " of sale s is a string and must be a hash",
		shard.Buyers("s"): " of sale s is a string and must be a hash",
		shard.Attempts():  " is a string and must be a hash",
		shard.Leases():    " is a string and must be a zset",
		shard.Sales():     " is a string and must be a set",
	} {
		t.Run(key, func(t *testing.T) {
			w := newWorld(t)
			w.create("other", 5, 1)
			w.create("s", 9, 1)
			w.buy("s", "ann")
			w.write("s", 1)
			w.buy("s", "bob")
			w.raw().Set(w.ctx, key, "x", 0)
			w.raw().HSet(w.ctx, shard.Guard(), "run_id", "previous")

			err := w.rebuild.Run(w.ctx)
			want := "key " + key + about + ": redis-cli RENAME " + key + " " + key + ":broken"
			if !errors.Is(err, guard.ErrKeyType) || !errors.Is(err, sale.ErrUnavailable) ||
				!strings.Contains(err.Error(), want) {
				t.Fatalf("%v; want %s", err, want)
			}
			w.check()
			if _, ok := w.guard.Verified(); ok {
				t.Error("the shard is verified")
			}
			w.raw().Rename(w.ctx, key, key+":broken")
			w.run()
			w.want("s", 7, 1, 1, 0, 0)
			w.want("other", 5, 0, 0, 0, 0)
		})
	}
}
