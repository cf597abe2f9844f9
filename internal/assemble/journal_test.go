package assemble

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// A rebuild waits for the journal of its own backend, even if the loop of the journal starts late: otherwise the units
// of orders that only the journal has would be for sale.
func TestRebuildWaitsForItsOwnJournal(t *testing.T) {
	for name, run := range map[string]func(context.Context, *Backend) error{
		"at the start": func(ctx context.Context, b *Backend) error { return b.rebuildUnverified(ctx, 0) },
		"on request":   func(ctx context.Context, b *Backend) error { return b.rebuilder.Run(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := newBackendWithJournal(t)
			rebuilt := make(chan error, 1)
			go func() { rebuilt <- run(t.Context(), b) }()
			for len(journals(t, b)) == 0 {
				select {
				case err := <-rebuilt:
					t.Fatalf("the rebuild has ended without the journal: %v", err)
				default:
				}
			}
			stop := testenv.Run(t, b.journals.Run) // only after the rebuild waits for the journal
			if err := <-rebuilt; err != nil {
				t.Fatal(err)
			}
			stop()
			if all := journals(t, b); len(all) != 1 || all[0].Generation != b.journals[0].Generation() ||
				all[0].Generation == 0 {
				t.Errorf("the rebuild of generation %d has ended with the journals %+v", b.journals[0].Generation(), all)
			}
		})
	}
}

// A backend that finds another backend's rebuild in progress does not change the state of its own journal in SQL, which
// that rebuild restores. A rebuild waits for a journal without a time limit only while SQL reports that the journal is
// being restored.
func TestRebuildInProgressSeesThatAJournalIsRestored(t *testing.T) {
	b, id := newBackendWithJournal(t)
	lock, err := redisconn.Acquire(t.Context(), b.stores.guards.Raw(), keyspace.Shard(0).RebuildLock(), time.Minute)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	const fence = 7
	if err := b.stores.recovery.Heartbeat(t.Context(), id, 0, -fence); err != nil {
		t.Fatal(err)
	}
	if err := b.rebuildUnverified(t.Context(), 0); !errors.Is(err, guard.ErrBusy) {
		t.Fatalf("during the rebuild of another backend: %v", err)
	}
	if all := journals(t, b); len(all) != 1 || all[0].Restoring != fence {
		t.Errorf("the rebuild %d waits for the journals %+v", fence, all)
	}
}

// A backend serves when SQL has its journals, so that a rebuild of another backend waits for every order.
func TestBackendServesWhenItsJournalIsRegistered(t *testing.T) {
	b, _ := newBackendWithJournal(t)
	if err := b.stores.db.Update(t.Context(), "test", func(ctx context.Context, c store.Conn) error {
		_, err := c.Exec(ctx, "CREATE TRIGGER full BEFORE INSERT ON journals BEGIN SELECT RAISE(FAIL, 'full'); END")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	public := testenv.Listen(t)
	ended, end := context.WithCancelCause(t.Context())
	go func() { end(b.Run(t.Context(), public, testenv.Listen(t))) }()
	r, err := http.NewRequestWithContext(ended, http.MethodGet, "http://"+public.Addr().String()+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err == nil {
		a.Body.Close()
		t.Fatalf("it serves without a journal in SQL: %s", a.Status)
	}
	if err := context.Cause(ended); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("it has ended with %v", err)
	}
}

// A database that rejects writes delays the first purchase of a new backend, and does not prevent it.
func TestBackendServesWithADatabaseThatRejectsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		begun := time.Now()
		unwritable := func(context.Context) error { return sale.ErrUnavailable }
		if err := registerJournals(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), unwritable); err != nil {
			t.Error(err)
		}
		if waited := time.Since(begun); waited != registerWait {
			t.Errorf("the backend serves after %v, want %v", waited, registerWait)
		}
		if !strings.Contains(log.String(), "SQL does not have the journals yet") {
			t.Errorf("log: %s", &log)
		}
	})
}

// newBackendWithJournal returns a backend on a new Redis, before its data is verified, and the id of its journal.
func newBackendWithJournal(t *testing.T) (b *Backend, id string) {
	t.Helper()
	dir := t.TempDir()
	b = newBackendOf(t, StoresConfig{
		Redis: testenv.StartRedis(t).URL, Database: storetest.SQLite(t), Shards: 1,
	}, dir)
	text, err := os.ReadFile(filepath.Join(dir, "id"))
	if err != nil {
		t.Fatal(err)
	}
	return b, strings.TrimSpace(string(text))
}

// journals returns the journals that a rebuild of the only shard sees.
func journals(t *testing.T, b *Backend) []journal.Status {
	t.Helper()
	all, err := b.stores.recovery.Journals(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
