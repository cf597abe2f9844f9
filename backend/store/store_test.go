package store_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// env is the database of one test.
type env struct {
	*store.Store
	url string
	ctx context.Context
}

// onEngines runs a test on an empty database of each engine.
func onEngines(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	storetest.Engines(t, func(t *testing.T, db *store.Store, databaseURL string) {
		test(t, &env{db, databaseURL, t.Context()})
	})
}

// open opens an existing database.
func open(t *testing.T, databaseURL string, cfg store.Config) *env {
	t.Helper()
	return &env{storetest.OpenConfig(t, databaseURL, cfg), databaseURL, t.Context()}
}

func (e *env) create(t *testing.T, id string, stock int64) sale.Sale {
	t.Helper()
	s, err := e.CreateSale(e.ctx, storetest.Sale(id, stock))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e *env) write(t *testing.T, orders ...sale.Order) {
	t.Helper()
	if err := e.Write(e.ctx, orders); err != nil {
		t.Fatal(err)
	}
}

// cancel cancels rows.
func (e *env) cancel(t *testing.T, orders ...sale.Order) {
	t.Helper()
	for _, o := range orders {
		if _, changed, err := e.CancelOrder(e.ctx, o.ID, "eve", ""); err != nil || !changed {
			t.Fatalf("cancel order %s: changed %v, %v", o.ID, changed, err)
		}
	}
}

// cancelDead cancels an order that died in the queue, and checks whether it was a row.
func (e *env) cancelDead(t *testing.T, o sale.Order, wantRow bool) {
	t.Helper()
	for range 2 { // a crash during the first call leads to a second
		wasRow, err := e.CancelDead(e.ctx, store.DeadOrder{Order: o}, "admin", "test")
		if err != nil || wasRow != wantRow {
			t.Fatalf("dead order of %s in sale %s: wasRow=%v, %v; want %v", o.Buyer, o.SaleID, wasRow, err, wantRow)
		}
	}
}

func (e *env) wantRejected(t *testing.T, what string, orders ...sale.Order) {
	t.Helper()
	if err := e.Write(e.ctx, orders); !errors.Is(err, store.ErrRejected) || errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("%s: got %v, want ErrRejected", what, err)
	}
}

// wantRows checks that the sale has n orders and counts n units as sold.
func (e *env) wantRows(t *testing.T, saleID string, n int64) {
	t.Helper()
	c, err := e.Count(e.ctx, spread.Part{SaleID: saleID}, store.Always, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Rows != n || c.Sold != n {
		t.Fatalf("sale %s has %d rows and %d sold units, want %d of both", saleID, c.Rows, c.Sold, n)
	}
}
