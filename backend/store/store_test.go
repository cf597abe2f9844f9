package store_test

import (
	"context"
	"encoding/json"
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

// acting returns a context of changes by an actor with a reason.
func acting(ctx context.Context, actor, reason string) context.Context {
	return store.WithReason(store.WithActor(ctx, actor), reason)
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
		if _, changed, err := e.CancelOrder(e.ctx, o.ID); err != nil || !changed {
			t.Fatalf("cancel order %s: changed %v, %v", o.ID, changed, err)
		}
	}
}

// cancelDead cancels an order that died in the queue, and checks whether it was a row.
func (e *env) cancelDead(t *testing.T, o sale.Order, wantRow bool) {
	t.Helper()
	for range 2 { // a crash during the first call leads to a second
		wasRow, err := e.CancelDead(e.ctx, store.DeadOrder{Order: o})
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

// ordersOf returns the orders that OrdersOf reads.
func (e *env) ordersOf(t *testing.T, of spread.Part) (all []sale.Order) {
	t.Helper()
	if err := e.OrdersOf(e.ctx, of, func(o sale.Order) error { all = append(all, o); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// beginArchive closes a sale and begins to archive it.
func (e *env) beginArchive(t *testing.T, id string) {
	t.Helper()
	_, err := e.SetSwitch(e.ctx, id, sale.Closed)
	if err == nil {
		err = e.BeginPart(e.ctx, id, store.ArchivePart{Number: 1, File: id + "-1", SHA256: "x"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// removeArchived removes the only row of a sale, as after its file was verified.
func (e *env) removeArchived(t *testing.T, id string) {
	t.Helper()
	rows, err := e.OrderRows(e.ctx, store.OrderQuery{SaleID: id})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	line, err := json.Marshal(rows[0])
	if err != nil {
		t.Fatal(err)
	}
	removed, err := e.RemoveOrders(e.ctx, id, []store.Archived{{ID: int64(rows[0].ID), JSON: string(line)}})
	if err != nil || removed != 1 {
		t.Fatalf("%d rows removed, %v", removed, err)
	}
}
