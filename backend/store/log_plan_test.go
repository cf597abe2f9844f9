package store

import (
	"path/filepath"
	"strings"
	"testing"
)

// The log of a sale reads its own index, whatever the other filters are, and sorts nothing.
func TestLogOfASaleUsesItsIndex(t *testing.T) {
	db, err := Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "orders.db"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []LogQuery{{SaleID: "a"}, {SaleID: "a", Before: 7}, {SaleID: "a", Before: 7, Limit: 1}} {
		query, args := pageOfLog(q)
		plan, err := ViewRows(t.Context(), db, "explain", func(row Scanner) (step string, err error) {
			var id, parent, unused int
			err = row.Scan(&id, &parent, &unused, &step)
			return step, err
		}, "EXPLAIN QUERY PLAN "+query, args...)
		if err != nil || len(plan) != 1 || !strings.Contains(plan[0], " admin_log_sale (sale_id>? AND sale_id<?)") {
			t.Errorf("%+v: plan %q, %v", q, plan, err)
		}
	}
}
