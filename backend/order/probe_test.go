package order_test

import (
	"errors"
	"path/filepath"
	"testing"

	"sluice/backend/order"
	"sluice/backend/order/ordertest"
	"sluice/backend/sale"
)

func TestProbeTellsWhetherADatabaseAnswers(t *testing.T) {
	for _, url := range []string{ordertest.Postgres(t), ordertest.SQLite(t)} {
		store, err := order.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if err := order.Probe(t.Context(), url); err != nil {
			t.Errorf("a database that is there: %v", err)
		}
	}
	for _, url := range []string{"postgres://sluice@127.0.0.1:1/x?sslmode=disable", "sqlite:" + filepath.Join(t.TempDir(), "none.db")} {
		if err := order.Probe(t.Context(), url); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("%s: %v", url, err)
		}
	}
	var bad *order.URLError
	if err := order.Probe(t.Context(), "mysql://x"); !errors.As(err, &bad) {
		t.Errorf("another kind of database: %v", err)
	}
}
