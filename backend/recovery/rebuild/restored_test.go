package rebuild_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
)

// backupOf copies an SQLite database and returns the URL of the copy.
func backupOf(t *testing.T, databaseURL string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "orders.db")
	storetest.Exec(t, databaseURL, "VACUUM INTO '"+copied+"'")
	return (&url.URL{Scheme: "sqlite", Path: copied}).String()
}

// restore replaces the database by a backup and restarts the process.
func (w *world) restore(backup string) {
	w.t.Helper()
	w.url, w.store = backup, openDatabase(w.t, backup)
	w.start()
}

// The database is restored from a backup without the last rebuilds: one rebuild succeeds, and orders without rows are
// queued again.
func TestOneRebuildIsEnoughForARestoredDatabase(t *testing.T) {
	for _, missing := range []int{0, 1, 2, 7} {
		t.Run(fmt.Sprint(missing, " rebuilds missing"), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 10, 1)
			for i := range 3 {
				w.buy("s", fmt.Sprint("early", i))
			}
			w.drain()
			older := backupOf(t, w.url)
			for range missing {
				w.run()
			}
			for i := range 4 {
				w.buy("s", fmt.Sprint("late", i))
			}
			w.write("s", 2) // not in the backup
			w.kill("s")
			w.want("s", 3, 1, 5, 1, 0)

			w.restore(older)
			if err := w.rebuild.Run(w.ctx, "s"); err != nil { // on request
				t.Fatal(err)
			}
			w.check()
			w.restoreJournal()
			if len(w.paused) > 0 {
				t.Errorf("paused: %v", w.paused)
			}
			w.want("s", 3, 3, 3, 1, 0)
			w.drain()
			w.want("s", 3, 0, 6, 1, 0)
			if d, err := w.try("s", "late0"); err != nil || d.Outcome != sale.AlreadyBought {
				t.Errorf("buyer of a missing row: %v, %v", d.Outcome, err)
			}
			w.buy("s", "next")
			w.drain()
			w.want("s", 2, 0, 7, 1, 0)
		})
	}
}

// Both stores are older, and the next fence is lower than that of the journal. The journal is restored.
func TestJournalIsRestoredWhenBothStoresAreOlder(t *testing.T) {
	for _, registered := range []bool{false, true} {
		t.Run(fmt.Sprint("journal registered: ", registered), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 10, 1)
			older := backupOf(t, w.url)
			for range 3 {
				w.run()
			}
			newest := w.writer.Restored()
			w.buy("s", "ann")
			w.raw().FlushAll(w.ctx)
			w.restore(older)
			if registered {
				if err := w.store.Heartbeat(w.ctx, w.journal.ID(), 0, newest); err != nil {
					t.Fatal(err)
				}
			}
			w.run()
			w.want("s", 9, 1, 0, 0, 0)
			w.drain()
			w.want("s", 9, 0, 1, 0, 0)
		})
	}
}

// A rebuild of all sales names those that only Redis has: they were created after the backup of the database.
func TestSalesOfRedisThatADatabaseDoesNotHaveAreNamed(t *testing.T) {
	w := newWorld(t)
	w.create("early", 10, 1)
	older := backupOf(t, w.url)
	w.create("drop", 10, 1)
	w.run() // loads it
	w.buy("drop", "ann")

	w.restore(older)
	var log strings.Builder
	r := newRebuilder(t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err := r.Run(w.ctx, "early"); err != nil {
		t.Fatal(err)
	}
	if got := r.Status().NotInSQL; len(got) > 0 || strings.Contains(log.String(), "drop") {
		t.Errorf("a rebuild of another sale names %v; log: %s", got, log.String())
	}
	if err := r.Run(w.ctx); err != nil {
		t.Fatal(err)
	}
	if got := r.Status().NotInSQL; !slices.Equal(got, []string{"drop"}) ||
		!strings.Contains(log.String(), "sales=[drop]") {
		t.Errorf("only Redis has drop, and the rebuild names %v; log: %s", got, log.String())
	}
	w.create("drop", 10, 1)
	if err := r.Run(w.ctx); err != nil {
		t.Fatal(err)
	}
	if got := r.Status().NotInSQL; len(got) > 0 {
		t.Errorf("a sale that was created again is named: %v", got)
	}
	w.want("drop", 9, 1, 0, 0, 0)
}

// Both stores return with older data while a backend restores its journal. If the next rebuild had the fence of that
// restoration, the restoration would continue in the other Redis, without the orders that it had restored before.
func TestFenceIsAboveThatOfARestorationInProgress(t *testing.T) {
	w := newWorld(t)
	if err := w.store.Heartbeat(w.ctx, "other", 0, -1000); err != nil {
		t.Fatal(err)
	}
	if fence, err := rebuild.NextFence(w.ctx, w.store, 0, w.raw()); err != nil || fence <= 1000 {
		t.Errorf("fence %d, %v, want more than 1000", fence, err)
	}
}
