package rebuild_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store/storetest"
)

// backup copies the database, and returns the URL of the copy.
func (w *world) backup() string {
	w.t.Helper()
	copied := filepath.Join(w.t.TempDir(), "orders.db")
	storetest.Exec(w.t, w.url, "VACUUM INTO '"+copied+"'")
	return (&url.URL{Scheme: "sqlite", Path: copied}).String()
}

// restore makes a backup the database, and starts the process anew.
func (w *world) restore(backup string) {
	w.t.Helper()
	w.url, w.store = backup, openDatabase(w.t, backup)
	w.start()
}

// The database is an older one, and Redis has all it had: one rebuild is enough, however many the database has
// forgotten, and the orders whose rows are missing wait again.
func TestOneRebuildIsEnoughForARestoredDatabase(t *testing.T) {
	for _, forgotten := range []int{0, 1, 2, 7} {
		t.Run(fmt.Sprint(forgotten, " rebuilds forgotten"), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 10, 1)
			for i := range 3 {
				w.buy("s", fmt.Sprint("early", i))
			}
			w.drain()
			older := w.backup()
			for range forgotten {
				w.run()
			}
			for i := range 4 {
				w.buy("s", fmt.Sprint("late", i))
			}
			w.write("s", 2) // their rows will be missing
			w.kill("s")
			w.want("s", 3, 1, 5, 1, 0)

			w.restore(older)
			if err := w.rebuild.Run(w.ctx, "s"); err != nil { // as an operator asks for it
				t.Fatal(err)
			}
			w.look()
			w.bring()
			if len(w.paused) > 0 {
				t.Errorf("paused: %v", w.paused)
			}
			w.want("s", 3, 3, 3, 1, 0)
			w.drain()
			w.want("s", 3, 0, 6, 1, 0)
			if d, err := w.try("s", "late0"); err != nil || d.Outcome != sale.AlreadyBought {
				t.Errorf("a buyer whose row was missing: %v, %v", d.Outcome, err)
			}
			w.buy("s", "next")
			w.drain()
			w.want("s", 2, 0, 7, 1, 0)
		})
	}
}

// Both are older, so the numbers of rebuilds begin anew below those that the journal knows: it is brought all the same.
func TestJournalIsBroughtWhenBothStoresAreOlder(t *testing.T) {
	for _, beaten := range []bool{false, true} {
		t.Run(fmt.Sprint("the database has heard of the journal: ", beaten), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 10, 1)
			older := w.backup()
			for range 3 {
				w.run()
			}
			w.buy("s", "ann")
			w.raw().FlushAll(w.ctx)
			w.restore(older)
			if beaten {
				if err := w.store.Heartbeat(w.ctx, w.journal.ID(), w.journal.Restored()); err != nil {
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
