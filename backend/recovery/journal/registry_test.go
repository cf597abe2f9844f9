package journal

import (
	"os"
	"slices"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestRegistryListsHeartbeats(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		r := NewRegistry(db.DB)
		for i, id := range []string{"a", "b", "a"} {
			if err := r.Heartbeat(t.Context(), id, 3, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		found, err := r.Journals(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 2 || found[0].ID != "a" || found[0].Generation != 2 || found[1].Generation != 1 {
			t.Fatalf("journals: %+v", found)
		}
		if others, err := r.Journals(t.Context(), 0); err != nil || len(others) > 0 {
			t.Errorf("journals of another shard: %+v, %v", others, err)
		}
		if err := r.Heartbeat(t.Context(), "b", 3, -4); err != nil {
			t.Fatal(err)
		}
		if found, err = r.Journals(t.Context(), 3); err != nil || found[1].Generation != 0 || found[1].Restoring != 4 {
			t.Errorf("during a restore: %+v, %v", found, err)
		}
		for _, j := range found {
			if j.Silent < 0 || j.Silent.Minutes() > 1 {
				t.Errorf("journal %s was silent for %v", j.ID, j.Silent)
			}
		}
	})
}

func TestRemovedSales(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		trial, removed := sale.RehearsalPrefix+"trial", sale.RehearsalPrefix+"removed"
		for _, id := range []string{"open", "archived", "archiving", trial} {
			if _, err := db.CreateSale(t.Context(), storetest.Sale(id, 10)); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"archived", "archiving"} {
			if _, err := db.SetSwitch(t.Context(), id, sale.Closed); err != nil {
				t.Fatal(err)
			}
			if err := db.BeginPart(t.Context(), id, store.ArchivePart{Number: 1, File: id, SHA256: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.EndArchive(t.Context(), "archived"); err != nil {
			t.Fatal(err)
		}
		all := []string{"open", "archived", "archiving", trial, removed, "unknown"}
		found, err := NewRegistry(db.DB).RemovedSales(t.Context(), all)
		if want := []string{"archived", removed}; err != nil || !slices.Equal(found, want) {
			t.Errorf("%q, %v; want %q", found, err, want)
		}
	})
}

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// A journal that no longer exists is removed after 90 days, and not after a shutdown of weeks.
func TestSilentJournalsAreRemoved(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		r := NewRegistry(db.DB)
		for _, j := range []struct {
			id          string
			shard, days int
		}{{"alive", 0, 0}, {"stopped", 0, 89}, {"gone", 0, 91}, {"of another shard", 1, 91}} {
			if err := r.Heartbeat(t.Context(), j.id, j.shard, 1); err != nil {
				t.Fatal(err)
			}
			_, err := store.UpdateRows(t.Context(), db.DB, "test",
				"UPDATE journals SET seen_at = "+db.Dialect().Ago("$2")+" WHERE id = $1", j.id, j.days*24*3600*1000)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := r.RemoveSilent(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for shard, want := range [][]string{{"alive", "stopped"}, {"of another shard"}} {
			found, err := r.Journals(t.Context(), shard)
			var ids []string
			for _, j := range found {
				ids = append(ids, j.ID)
			}
			if err != nil || !slices.Equal(ids, want) {
				t.Errorf("journals of shard %d: %v, %v; want %v", shard, ids, err, want)
			}
		}
	})
}
