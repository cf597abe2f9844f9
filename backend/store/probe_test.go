package store_test

import (
	"errors"
	"path/filepath"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestProbeReportsWhetherTheDatabaseResponds(t *testing.T) {
	for _, url := range []string{storetest.Postgres(t), storetest.SQLite(t)} {
		db, err := store.Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := store.Probe(t.Context(), url); err != nil {
			t.Errorf("existing database: %v", err)
		}
	}
	for _, url := range []string{"postgres://sluice@127.0.0.1:1/x?sslmode=disable",
		"sqlite:" + filepath.Join(t.TempDir(), "none.db")} {
		if err := store.Probe(t.Context(), url); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("%s: %v", url, err)
		}
	}
	var bad *store.URLError
	if err := store.Probe(t.Context(), "mysql://x"); !errors.As(err, &bad) {
		t.Errorf("unknown engine: %v", err)
	}
}
