package store

import (
	"path/filepath"
	"strings"
	"testing"
)

// explain returns the steps of a query in SQLite.
func explain(t *testing.T, db *DB, query string, args ...any) ([]string, error) {
	return ViewRows(t.Context(), db, "explain", func(row Scanner) (step string, err error) {
		var id, parent, unused int
		err = row.Scan(&id, &parent, &unused, &step)
		return step, err
	}, "EXPLAIN QUERY PLAN "+query, args...)
}

// The log of a sale reads its own index, whatever the other filters are, and sorts nothing.
func TestLogOfASaleUsesItsIndex(t *testing.T) {
	db, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "orders.db"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []LogQuery{{SaleID: "a"}, {SaleID: "a", Before: 7}, {SaleID: "a", Before: 7, Limit: 1}} {
		query, args := pageOfLog(q)
		plan, err := explain(t, db, query, args...)
		if err != nil || len(plan) != 1 || !strings.Contains(plan[0], " admin_log_sale (sale_id>? AND sale_id<?)") {
			t.Errorf("%+v: plan %q, %v", q, plan, err)
		}
	}
}

// The list of ended sales does not search the log for each sale: with many sales the statement would exceed its
// timeout.
func TestEndedSalesReadTheLogOnce(t *testing.T) {
	db, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "orders.db"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	plan, err := explain(t, db, endedSales(db.Dialect()))
	if err != nil || strings.Contains(strings.Join(plan, "\n"), "CORRELATED") {
		t.Errorf("plan %q, %v", plan, err)
	}
}
