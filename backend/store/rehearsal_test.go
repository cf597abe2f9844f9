package store_test

import (
	"errors"
	"slices"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

const rehearsal = sale.RehearsalPrefix + "s-x"

// The last sale of a page is a rehearsal that is removed before the next page is read.
func TestSalesPageBehindARemovedRehearsal(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "a", 1)
		e.create(t, rehearsal, 1)
		e.create(t, "z", 1)
		if _, err := e.SetSwitch(e.ctx, rehearsal, sale.Closed); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RemoveRehearsal(e.ctx, rehearsal); err != nil {
			t.Fatal(err)
		}
		page, err := e.SalesPage(e.ctx, store.SalesQuery{After: rehearsal})
		if err != nil || len(page) != 1 || page[0].ID != "a" {
			t.Errorf("%+v, %v; want sale a", page, err)
		}
	})
}

func TestRehearsalIsRemovedWithItsOrders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 100)
		e.create(t, rehearsal, 2000)
		real, of := storetest.Orders("s", 3), storetest.Orders(rehearsal, 1100) // more than deleteBatch
		e.write(t, real...)
		for batch := range slices.Chunk(of, 200) {
			e.write(t, batch...)
		}
		e.cancel(t, of[0])
		if _, err := e.Restock(e.ctx, rehearsal, 5, "k"); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"s", rehearsal} { // a real sale, and an open rehearsal
			if n, err := e.RemoveRehearsal(e.ctx, id); !errors.Is(err, sale.ErrConflict) || n != 0 {
				t.Fatalf("%s: %d, %v", id, n, err)
			}
			if _, err := e.SetSwitch(e.ctx, id, sale.Closed); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.RemoveRehearsal(e.ctx, "s"); !errors.Is(err, sale.ErrConflict) {
			t.Fatalf("a real sale: %v", err)
		}
		if n, err := e.RemoveRehearsal(store.WithActor(e.ctx, "eve"), rehearsal); err != nil || n != int64(len(of)) {
			t.Fatalf("%d orders, %v", n, err)
		}
		log, err := e.Log(e.ctx, store.LogQuery{Limit: 1})
		if err != nil || log[0].Actor != "eve" || log[0].Action != "rehearsal.remove" || log[0].Target != rehearsal ||
			log[0].Detail != "1100 orders" {
			t.Fatalf("log %+v, %v", log, err)
		}
		if _, err := e.RemoveRehearsal(e.ctx, rehearsal); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("second call: %v", err)
		}
		if err := e.Write(e.ctx, of[5:7]); !errors.Is(err, store.ErrRejected) {
			t.Fatalf("a late worker: %v", err)
		}
		ids := []sale.OrderID{real[0].ID, real[1].ID, real[2].ID, of[0].ID, of[1].ID, of[1099].ID}
		rows, err := e.Statuses(e.ctx, ids)
		if err != nil || len(rows) != 3 {
			t.Fatalf("rows %v, %v; want those of the real sale", rows, err)
		}
		if _, sold, err := e.Sale(e.ctx, "s"); err != nil || sold != 3 {
			t.Fatalf("the real sale: %d sold, %v", sold, err)
		}
	})
}
