package store_test

import (
	"testing"
	"time"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// In a table of few and large sales, a page of one sale does not read the rows of the others.
func TestPagesOfASaleReadItsRowsOnly(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.Postgres(t)
	db, err := store.Open(ctx, url, store.Config{Timeout: storetest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(db)
	sql := storetest.Connect(t, url)
	for _, id := range []string{"a", "b"} {
		if _, err := s.CreateSale(ctx, storetest.Sale(id, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	for _, statement := range []string{ // ORDER BY id + 0 uses no index, because reads of indexes are counted below
		`INSERT INTO orders (id, sale_id, buyer, slot, serial, status)
			SELECT n, chr(97 + (n - 1) / 10000), n::text, 1, n, 'paid' FROM generate_series(1, 20000) AS n`,
		`INSERT INTO payments (callback_id, digest, order_id, sale_id, event, amount, currency, reference, outcome, refund)
			SELECT id, '', id, sale_id, 'succeeded', 1, 'EUR', id, 'paid', 0 FROM orders`,
		`INSERT INTO admin_log (actor, action, target, sale_id)
			SELECT 'eve', 'order.cancel', id, sale_id FROM orders ORDER BY id + 0`,
		"ANALYZE",
	} {
		if _, err := sql.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []store.OrderQuery{
		{SaleID: "b", Limit: 10}, {SaleID: "a", Newest: true, Limit: 10}, {SaleID: "b", After: 10_010, Limit: 10},
	} {
		if rows, err := s.OrderRows(ctx, q); err != nil || len(rows) != 10 || rows[0].SaleID != q.SaleID {
			t.Fatalf("%+v: %+v, %v", q, rows, err)
		}
	}
	if rows, err := s.Callbacks(ctx, store.CallbackQuery{SaleID: "b", Limit: 10}); err != nil || len(rows) != 10 {
		t.Fatalf("payments: %+v, %v", rows, err)
	}
	for _, q := range []store.LogQuery{{SaleID: "a", Limit: 10}, {SaleID: "a", Before: 5_000, Limit: 10}} {
		if rows, err := s.Log(ctx, q); err != nil || len(rows) != 10 || rows[0].SaleID != q.SaleID {
			t.Fatalf("%+v: %+v, %v", q, rows, err)
		}
	}
	if err := db.Close(); err != nil { // PostgreSQL adds the statistics of a session when the session ends
		t.Fatal(err)
	}
	var bySale, others int
	testenv.Eventually(t, time.Minute, "the statistics are updated", func() bool {
		err := sql.QueryRow(ctx, `SELECT
				sum(idx_scan) FILTER (WHERE indexrelname IN ('orders_sale', 'payments_sale', 'admin_log_sale')),
				sum(idx_tup_read) FILTER (WHERE indexrelname NOT IN ('orders_sale', 'payments_sale', 'admin_log_sale'))
			FROM pg_stat_user_indexes WHERE relname IN ('orders', 'payments', 'admin_log')`).Scan(&bySale, &others)
		return err == nil && (bySale == 6 || others > 200)
	})
	if others > 200 {
		t.Errorf("six pages of 10 read %d entries of indexes that are not by sale", others)
	}
}
