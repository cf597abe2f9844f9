package assemble

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/redis/keyspace"
	"sluice/backend/store/storetest"
)

// A command of an admin rejects a database of another deployment than Redis.
func TestExistingRejectsTheDatabaseOfAnotherDeployment(t *testing.T) {
	const shards = 2
	url := storetest.SQLite(t)
	tables := storetest.Open(t, url)
	if _, _, err := tables.ClaimDeployment(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	mine, _, err := tables.Generation(t.Context(), 0)
	if err != nil || mine == 0 {
		t.Fatalf("deployment %x, %v", mine, err)
	}
	shard := keyspace.Shard(1)
	for name, c := range map[string]struct {
		fill func(m *miniredis.Miniredis)
		want string // of the error; empty: none
	}{
		"empty Redis": {func(*miniredis.Miniredis) {}, ""},
		"the same deployment": {func(m *miniredis.Miniredis) {
			m.HSet(shard.Guard(), "deployment", strconv.FormatInt(mine, 10), "shards", "2")
		}, ""},
		"another deployment": {func(m *miniredis.Miniredis) {
			m.HSet(shard.Guard(), "deployment", strconv.FormatInt(mine/2, 10), "shards", "2")
		}, fmt.Sprintf("Redis holds the data of deployment %x, and the database is that of deployment %x", mine/2, mine)},
		"more shards": {func(m *miniredis.Miniredis) { m.HSet(shard.Guard(), "shards", "3") },
			"Redis holds its orders in 3 shards"},
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
