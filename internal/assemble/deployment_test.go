package assemble

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
)

// A command of an admin rejects a database of another deployment than Redis.
func TestExistingRejectsTheDatabaseOfAnotherDeployment(t *testing.T) {
	const shards = 2
	url := storetest.SQLite(t)
	tables := storetest.Open(t, url)
	if _, err := tables.ClaimShards(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	if _, err := tables.CreateSale(t.Context(), storetest.Sale("shoe", 1)); err != nil {
		t.Fatal(err)
	}
	if err := tables.BeginGeneration(t.Context(), 1, 4); err != nil {
		t.Fatal(err)
	}
	shard := keyspace.Shard(1)
	for name, c := range map[string]struct {
		fill func(m *miniredis.Miniredis)
		want string // of the error; empty: none
	}{
		"empty Redis": {func(*miniredis.Miniredis) {}, ""},
		"the same deployment": {func(m *miniredis.Miniredis) {
			m.HSet(shard.Guard(), "generation", "4")
			_, _ = m.SAdd(shard.Sales(), "shoe", sale.RehearsalPrefix+"removed")
		}, ""},
		"a rebuild in progress": {func(m *miniredis.Miniredis) { m.HSet(shard.Guard(), "generation", "3") }, ""},
		"a later generation": {func(m *miniredis.Miniredis) { m.HSet(shard.Guard(), "generation", "5") },
			"shard 1 has generation 5 in --redis and 4 in --database"},
		"another sale": {func(m *miniredis.Miniredis) { _, _ = m.SAdd(shard.Sales(), "shoe", "bag") },
			"--database does not have the sale bag, which is in shard 1 of --redis"},
		"an older backup": {func(m *miniredis.Miniredis) { _, _ = m.SAdd(shard.Sales(), "shoe", "bag") },
			"after a restore from a backup, create the sale again, and run sluice sale rebuild --all first"},
		"no Redis": {func(m *miniredis.Miniredis) { m.Close() }, ""},
	} {
		m := miniredis.RunT(t)
		redis := "redis://" + m.Addr()
		c.fill(m)
		s, err := OpenStores(t.Context(), StoresConfig{
			Redis: redis, Database: url, Shards: shards, Existing: true, Driver: DriverList,
			Log: slog.New(slog.DiscardHandler),
		})
		if err == nil {
			s.Close()
		}
		var bad UsageError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
