package rebuild_test

import (
	"context"
	"errors"
	"testing"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// looked is a store in which something happens after rows were looked for, and before whoever looked can act on it.
type looked struct {
	*database
	then func()
}

func (l looked) Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	rows, err := l.Store.Statuses(ctx, ids)
	l.then()
	return rows, err
}

// An order becomes a row, is cancelled, and its unit and place go back to the sale, all while somebody brings it to
// Redis: no place and no letter tells that it was ever here.
func TestAdoptedOrderThatIsSettledMeanwhile(t *testing.T) {
	for name, settle := range map[string]func(*world, sale.OrderID){
		"its row is cancelled": func(w *world, id sale.OrderID) {
			w.drain()
			o, _, err := w.store.CancelOrder(w.ctx, id, "test", "no")
			if err != nil {
				t.Fatal(err)
			}
			numbers, err := w.stock.ReturnUnits(w.ctx, "s", []sale.Order{o})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.store.MarkReturned(w.ctx, []store.Return{{ID: id, Number: numbers[0]}}); err != nil {
				t.Fatal(err)
			}
			if err := w.stock.ConfirmReturns(w.ctx, "s", []sale.OrderID{id}); err != nil {
				t.Fatal(err)
			}
		},
		"its dead letter is cancelled": func(w *world, id sale.OrderID) {
			w.kill("s")
			w.cancelDead(id, w.beginCancel(id))
			if err := w.shard("s").FinishCancel(w.ctx, id, true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, 1)
			id := w.buy("s", "ann")
			once := func() { settle(w, id) }
			adopter := rebuild.NewRestorer(w.raw(), space, looked{w.store, func() { once(); once = func() {} }})
			done, err := adopter.RestoreOrders(w.ctx, w.guard.Generation(), []sale.Order{{ID: id, SaleID: "s", Buyer: "ann"}})
			if err != nil || done != (rebuild.Restored{Rows: 1}) {
				t.Errorf("an order that is cancelled: %+v, %v", done, err)
			}
			w.drain()
			w.want("s", 5, 0, 0, 0, 0)
			w.buy("s", "ann")
		})
	}
}

// Orders of a sale go back again and again. Those that Redis knows are brought all the same; for the others nothing is
// done that could be wrong.
func TestAdoptBesideEndlessReturns(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	known := sale.Order{ID: w.buy("s", "ann"), SaleID: "s", Buyer: "ann"}
	lost := sale.Order{ID: known.ID + 1, SaleID: "s", Buyer: "bob"}
	looks := 0
	adopter := rebuild.NewRestorer(w.raw(), space, looked{w.store, func() {
		looks++
		w.raw().HIncrBy(w.ctx, space.ShardOf("s").Sale("s"), "returned", 1)
	}})
	if done, err := adopter.RestoreOrders(w.ctx, w.guard.Generation(), []sale.Order{known}); err != nil || done != (rebuild.Restored{Known: 1}) || looks != 1 {
		t.Errorf("an order that Redis knows: %+v, %v after %d looks", done, err, looks)
	}
	if done, err := adopter.RestoreOrders(w.ctx, w.guard.Generation(), []sale.Order{known, lost}); !errors.Is(err, sale.ErrUnavailable) || done != (rebuild.Restored{}) {
		t.Errorf("an order of which nothing is certain: %+v, %v", done, err)
	}
	w.want("s", 4, 1, 0, 0, 0)
	w.bring()
	quiet := rebuild.NewRestorer(w.raw(), space, w.store)
	if done, err := quiet.RestoreOrders(w.ctx, w.guard.Generation(), []sale.Order{known, lost}); err != nil || done != (rebuild.Restored{Known: 1, Requeued: 1}) {
		t.Errorf("when it is quiet again: %+v, %v", done, err)
	}
	w.want("s", 3, 2, 0, 0, 0)
}

// Somebody has begun to cancel a dead order when Redis goes back to a time at which it waited in the queue: it is not
// settled behind the rebuild's back, since its unit would never go back to the sale.
func TestCancelThatARebuildOvertookSettlesNothing(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	id := w.buy("s", "ann")
	older := w.copyOf()
	w.kill("s")
	generation := w.beginCancel(id)
	w.put(older)
	w.run()
	message := sale.Order{ID: id, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
	if _, err := w.store.CancelDead(store.WithGeneration(w.ctx, generation), store.DeadOrder{Order: message}, "test", "no"); !errors.Is(err, store.ErrStale) {
		t.Errorf("an order that waits in the queue is settled as dead: %v", err)
	}
	w.drain()
	w.want("s", 4, 0, 1, 0, 0)
}

// beginCancel marks a dead order of the sale "s" and returns the generation of the Redis that has it.
func (w *world) beginCancel(id sale.OrderID) (generation int64) {
	w.t.Helper()
	letter, err := w.shard("s").BeginCancel(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if letter.Generation != w.guard.Generation() || letter.Generation == 0 {
		w.t.Fatalf("a letter of generation %d in a Redis of %d", letter.Generation, w.guard.Generation())
	}
	return letter.Generation
}

func (w *world) cancelDead(id sale.OrderID, generation int64) {
	w.t.Helper()
	letter, err := w.shard("s").DeadLetter(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.CancelDead(store.WithGeneration(w.ctx, generation), store.DeadOrder{Order: letter.Message}, "test", "no"); err != nil {
		w.t.Fatal(err)
	}
}
