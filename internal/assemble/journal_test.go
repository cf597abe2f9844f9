package assemble

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/recovery/journal"
	"sluice/backend/store/storetest"
	"sluice/gateway/replay"
	"sluice/internal/token"
	"sluice/test/testenv"
)

// A rebuild waits for the journal of its own backend, even if the loop of the journal starts late: otherwise the units
// of orders that only the journal has would be for sale.
func TestRebuildWaitsForItsOwnJournal(t *testing.T) {
	keys, err := token.Open("", "a secret for tests, of more than thirty-two bytes", token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stores, err := OpenStores(t.Context(), StoresConfig{
		Redis: testenv.StartRedis(t).URL, Database: storetest.SQLite(t), Shards: 1, Driver: DriverList,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stores.Close)
	b, err := NewBackend(stores, BackendConfig{
		AdminToken: "secret", Policies: replay.NewTrial(), Registry: prometheus.NewRegistry(), Tokens: keys,
		Journal: JournalConfig{Dir: t.TempDir()},
	})
	if err != nil {
		t.Fatal(err)
	}
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- b.rebuildUnverified(t.Context(), 0) }()
	journals := func() []journal.Status {
		all, err := stores.recovery.Journals(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for len(journals()) == 0 {
		select {
		case err := <-rebuilt:
			t.Fatalf("the rebuild has ended without the journal: %v", err)
		default:
		}
	}
	stop := testenv.Run(t, b.journals.Run) // as late as this
	if err := <-rebuilt; err != nil {
		t.Fatal(err)
	}
	stop()
	if all := journals(); len(all) != 1 || all[0].Generation != b.journals[0].Generation() || all[0].Generation == 0 {
		t.Errorf("the rebuild of generation %d has ended with the journals %+v", b.journals[0].Generation(), all)
	}
}
