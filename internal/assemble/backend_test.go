package assemble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/backend/web/httpserver"
	"sluice/gateway/replay"
	"sluice/internal/token"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

func TestBackendReloadsChangedKeys(t *testing.T) {
	first, old := tokentest.Generate(token.HS256, "k1")
	second, next := tokentest.Generate(token.HS256, "second")
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, first, 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := token.Open(path, "", token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	b := &Backend{cfg: BackendConfig{Tokens: keys}, log: slog.New(slog.NewTextHandler(&log, nil))}
	stop := testenv.Run(t, b.followKeys)
	if err := errors.Join(os.WriteFile(path+".new", second, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the new key is known", func() bool {
		_, err := keys.Verify(next)
		return err == nil
	})
	if _, err := keys.Verify(old); err == nil {
		t.Error("the old key is still accepted")
	}
	stop()
	if !strings.Contains(log.String(), "HS256 second") {
		t.Errorf("the log is %s", log.String())
	}
}

// newBackend returns a backend of one shard on the two stores, before its data is verified.
func newBackend(t *testing.T, redis, database string) *Backend {
	t.Helper()
	return newShardedBackend(t, redis, database, 1)
}

func newShardedBackend(t *testing.T, redis, database string, shards int) *Backend {
	t.Helper()
	return newBackendOf(t, StoresConfig{Redis: redis, Database: database, Shards: shards}, "")
}

// tokenSecret is the secret of the backends of tests.
const tokenSecret = "a secret for tests, of more than thirty-two bytes"

// newBackendOf returns a backend with a journal in a directory, unless that is empty. Log of cfg may be nil.
func newBackendOf(t *testing.T, cfg StoresConfig, journalDir string) *Backend {
	t.Helper()
	keys, err := token.Open("", tokenSecret, token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Driver, cfg.Log = DriverList, cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	stores, err := OpenStores(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stores.Close)
	b, err := NewBackend(stores, BackendConfig{
		AdminToken: "secret", Policies: replay.NewTrial(), Registry: prometheus.NewRegistry(), Tokens: keys,
		Journal: JournalConfig{Dir: journalDir},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The first start on a new Redis is no failure: the loops begin when it is verified.
func TestFirstStartLogsNoWarning(t *testing.T) {
	var log testenv.Buffer
	b := newBackendOf(t, StoresConfig{
		Redis: testenv.StartRedis(t).URL, Database: "sqlite:" + filepath.Join(t.TempDir(), "orders.db"), Shards: 2,
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, "")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, testenv.Listen(t), testenv.Listen(t)) }()
	testenv.Eventually(t, time.Minute, "Redis is verified and the relay runs", func() bool {
		_, ok := b.stores.guards.Verified()
		return ok && b.stores.guards.Raw().Exists(t.Context(), keyspace.Space{Shards: 2}.EventRelay()).Val() > 0
	})
	stop()
	if err := <-done; err != nil || log.String() != "" {
		t.Errorf("%v, and logged %s", err, &log)
	}
}

// A start rebuilds a Redis server that is new or was emptied. It does not take over the data of another deployment;
// only an admin may do that.
func TestVerifyRefusesTheDataOfAnotherDeployment(t *testing.T) {
	redis := testenv.StartRedis(t).URL
	owner := newBackend(t, redis, storetest.SQLite(t))
	if err := owner.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := dump(t, owner)
	other := newBackend(t, redis, storetest.SQLite(t))
	if _, err := other.stores.tables.CreateSale(t.Context(), newSale()); err != nil {
		t.Fatal(err)
	}
	if err := other.Admin.RunOnce(t.Context()); err == nil {
		t.Error("the sales were applied to the data of another deployment, before a check")
	}
	var foreign *guard.DeploymentError
	if err := other.Verify(t.Context()); !errors.As(err, &foreign) {
		t.Errorf("Verify on the data of another deployment: %v, want a DeploymentError", err)
	}
	public, admin := testenv.Listen(t), testenv.Listen(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if err := other.Run(ctx, public, admin); err != nil {
		t.Error(err)
	}
	if after := dump(t, owner); !maps.Equal(before, after) {
		t.Errorf("the data of another deployment has changed from\n%q to\n%q", before, after)
	}
	if verified, err := owner.verified(t.Context()); err != nil || !verified {
		t.Errorf("the data is verified for its deployment: %t, %v, want true", verified, err)
	}
}

func newSale() sale.Sale {
	return sale.Sale{
		ID: "new", Title: "New", Stock: 1, Price: sale.Price{Amount: 100, Currency: "EUR"}, PerBuyer: 1, OpensAt: time.Now(),
	}
}

// dump returns all keys in Redis with their values.
func dump(t *testing.T, b *Backend) map[string]string {
	t.Helper()
	raw, all := b.stores.guards.Raw(), map[string]string{}
	keys, err := raw.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		all[key] = raw.Dump(t.Context(), key).Val()
	}
	return all
}

// Another backend has created a sale since this backend read SQL. The shard of the sale was held while a purchase was
// decided, and is not held any more. The sale is known.
func TestSaleThatRedisHoldsAgainIsKnown(t *testing.T) {
	redis, database := testenv.StartRedis(t).URL, storetest.SQLite(t)
	start := func() *Backend {
		b := newBackend(t, redis, database)
		if err := errors.Join(b.Verify(t.Context()), b.Admin.RunOnce(t.Context())); err != nil {
			t.Fatal(err)
		}
		return b
	}
	this, other := start(), start()
	if _, err := other.Admin.Create(t.Context(), newSale()); err != nil {
		t.Fatal(err)
	}
	if this.Admin.Known("new") || !this.known("new") || this.known("none") {
		t.Errorf("new is known from memory: %t, known: %t; none is known: %t", this.Admin.Known("new"), this.known("new"),
			this.known("none"))
	}
}

func TestConsumerNameHasHostAndProcess(t *testing.T) {
	names := consumerNames()
	a, b := names(), names()
	if owner := fmt.Sprintf("-%d-", os.Getpid()); a == b || !strings.Contains(a, owner) || !strings.Contains(b, owner) {
		t.Errorf("%q and %q: want two names with %q", a, b, owner)
	}
	if strings.ContainsAny(a, "{} ") {
		t.Errorf("%q does not fit into a Redis key", a)
	}
}

// The remedy for a full disk is to make room: another directory does not have the orders of this journal.
func TestRemedyOfAJournalThatCannotBeOpened(t *testing.T) {
	s := &Stores{space: keyspace.Space{Shards: 1}, log: slog.New(slog.DiscardHandler)}
	open := func(dir, want string) {
		t.Helper()
		_, _, err := s.openJournals(JournalConfig{Dir: dir, Sync: journal.Second}, prometheus.NewRegistry())
		if _, bad := errors.AsType[UsageError](err); !bad || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want a UsageError that ends in %q", err, want)
		}
	}
	full := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(full, "id.tmp")); err != nil {
		t.Fatal(err)
	}
	open(full, "(make room on its disk)")
	used := t.TempDir()
	j, err := journal.Open(used, journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	open(used, " is in use by another backend (name a directory that only this backend uses)")
}

// The gauge of a journal is 0 while its writes fail.
func TestJournalThatCannotBeWrittenIsExported(t *testing.T) {
	b := newBackend(t, testenv.StartRedis(t).URL, storetest.SQLite(t))
	registry := prometheus.NewRegistry()
	writers, closers, err := b.stores.openJournals(JournalConfig{Dir: t.TempDir()}, registry)
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want >= 0; want-- {
		_ = writers.Record(0, 1, []sale.Order{{ID: sale.OrderID(9 + want), SaleID: "s", Buyer: "ann"}})
		text := fmt.Sprintf(`
# HELP sluice_journal_up Whether the last write to the journal of a shard succeeded.
# TYPE sluice_journal_up gauge
sluice_journal_up{shard="0"} %d
`, want)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "sluice_journal_up"); err != nil {
			t.Error(err)
		}
		closers[0]()
	}
}

// A Redis that rejects every order answers PING. /readyz and the list of shards name its reason.
func TestRedisThatRejectsWritesIsNotReady(t *testing.T) {
	b := newBackend(t, testenv.StartRedis(t).URL, storetest.SQLite(t))
	if err := b.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := b.stores.guards.Of(0).Raw()
	before := dump(t, b)
	for _, c := range []struct{ setting, value, want string }{
		{"maxmemory", "1", "its memory is full (raise maxmemory)"},
		{"maxmemory", "0", ""},
		{"min-replicas-to-write", "1", "too few replicas (min-replicas-to-write)"},
		{"min-replicas-to-write", "0", ""},
	} {
		if err := admin.ConfigSet(t.Context(), c.setting, c.value).Err(); err != nil {
			t.Fatal(err)
		}
		err := b.stores.pingRedis(t.Context())
		if got := redisDetail(err); got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s %s: %v is reported as %q, want %q", c.setting, c.value, err, got, c.want)
		}
		if now := b.stores.shardStatus(t.Context())[0]; !now.Verified || now.Reason != c.want {
			t.Errorf("%s %s: the list of shards has %+v, want %q", c.setting, c.value, now, c.want)
		}
	}
	if after := dump(t, b); !maps.Equal(before, after) {
		t.Errorf("the checks have changed the data from\n%q to\n%q", before, after)
	}
	r := testenv.StartRedis(t)
	if err := r.Client().ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	denied := errors.Join(testenv.OpenPatient(t, r.URL).Ping(t.Context()).Err())
	if got, want := redisDetail(denied), "it rejects the user or the password (correct SLUICE_REDIS_URL)"; got != want {
		t.Errorf("%v is reported as %q, want %q", denied, got, want)
	}
	for err, want := range map[error]string{store.ErrReadOnly: "read-only", store.ErrFull: "its disk is full"} {
		if got := databaseDetail(fmt.Errorf("ping: %w", err)); !strings.HasPrefix(got, want) {
			t.Errorf("%v is reported as %q, want %q", err, got, want)
		}
	}
}

// A backend that cannot use one of its shards is ready, and /readyz names the shard.
func TestShardThatIsNotVerifiedIsNamed(t *testing.T) {
	b := newShardedBackend(t, testenv.StartRedis(t).URL, storetest.SQLite(t), 3)
	if err := b.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "all shards respond within shardWait", func() bool {
		return b.stores.pingRedis(t.Context()) == nil
	})
	guard := b.stores.guards.Of(1)
	if err := guard.Raw().Del(t.Context(), keyspace.Shard(1).Guard()).Err(); err != nil {
		t.Fatal(err)
	}
	if guard.CheckNow(t.Context(), b.stores.tables) {
		t.Fatal("a shard without its record is verified")
	}
	testenv.Eventually(t, time.Minute, "shard 1 cannot be used", func() bool {
		degraded, ok := errors.AsType[*httpserver.Degraded](b.stores.pingRedis(t.Context()))
		return ok && slices.Equal(degraded.Shards, []int{1})
	})
}

// /readyz distinguishes a Redis server that waits for a rebuild, or belongs to another deployment, from one that is
// down. With several shards it names every state.
func TestRedisThatIsNotVerifiedIsNotDown(t *testing.T) {
	for err, want := range map[error]string{
		errors.Join(guard.ErrUnverified):      "not verified (sluice shard list has the reason)",
		errors.Join(errors.New("refused")):    "",
		errors.Join(context.DeadlineExceeded): "",
		errors.Join(errors.New("refused"), guard.ErrUnverified, errors.New("refused")): "down; " +
			"not verified (sluice shard list has the reason)",
		errors.Join(errors.New("refused"), context.DeadlineExceeded): "",
	} {
		if got := redisDetail(fmt.Errorf("redis: %w", err)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
