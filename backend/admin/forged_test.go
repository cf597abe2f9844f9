package admin

import (
	"errors"
	"fmt"
	"testing"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// forge queues a message by hand, without an accepted order or a unit, and makes it a dead letter.
func (w *world) forge(o sale.Order) sale.Order {
	w.t.Helper()
	shard := space.ShardOf(o.SaleID)
	if err := w.redis.Client().LPush(w.ctx, shard.Ready(), keyspace.EncodeMessage(o)).Err(); err != nil {
		w.t.Fatal(err)
	}
	b, _, err := queuetest.Take(w.ctx, w.queues[shard], 10, "")
	if err != nil || len(b.Messages) != 1 {
		w.t.Fatalf("took %+v, %v", b, err)
	}
	if _, err := w.queues[shard].Ack(w.ctx, b.ID,
		queue.Failure{ID: o.ID, Reason: "refused", Permanent: true}); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// wantLog checks the last line of the action log about an order, with its actor and reason.
func (w *world) wantLog(id sale.OrderID, action string, heldNoUnit bool) {
	w.t.Helper()
	log, err := w.store.Log(w.ctx, store.LogQuery{Target: id.String(), Limit: 1})
	if err != nil || len(log) != 1 || log[0].Action != action || log[0].Actor != "ann" ||
		log[0].HeldNoUnit() != heldNoUnit {
		w.t.Fatalf("log %+v, %v; want %s", log, err, action)
	}
}

func TestCancelOfAForgedOrderReturnsNoUnit(t *testing.T) {
	w := newWorld(t)
	id := sale.OrderID(1000)
	w.each(func(fault string) {
		f := *w.faults
		w.noFault()
		w.create(fault, 5)
		w.buy(fault, "bob")
		w.drain()
		id++
		dead := w.forge(sale.Order{ID: id, SaleID: fault, Buyer: "eve", Slot: 1, Serial: 9})

		*w.faults = f
		_, err := w.dead.Cancel(w.ctx, dead.ID)
		if w.faults.what != "" != errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("the fault was hidden: %v", err)
		}
		w.noFault()
		for range 2 {
			got, err := w.dead.Cancel(w.ctx, dead.ID)
			if err != nil || got.UnitReturned || got.Order.Status != sale.StatusCancelled || got.Order.ID != dead.ID {
				t.Errorf("again: %+v, %v", got, err)
			}
		}
		w.wantNoDeadLetter(dead.ID)
		w.wantLog(dead.ID, store.CancelledOrder, true)
		w.wantTotals(fault, 4, 1)
		w.wantBalanced(fault)
		if err := w.store.Write(w.ctx, []sale.Order{dead}); err != nil { // by a late worker
			t.Fatal(err)
		}
		w.wantTotals(fault, 4, 1)
		if d := w.buy(fault, "eve"); d.Outcome != sale.Accepted {
			t.Errorf("its buyer got %s", d.Outcome)
		}
		w.drain()
		w.wantBalanced(fault)
	})
}

// A forged message does not change the orders of other buyers.
func TestForgedOrdersTakeNoUnitOfOthers(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	bob := w.makeDead("s", "bob")
	for name, o := range map[string]sale.Order{
		"of a buyer who holds another order": {ID: 2001, SaleID: "s", Buyer: "bob", Slot: 1, Serial: 2},
		"with a slot above the limit":        {ID: 2002, SaleID: "s", Buyer: "bob", Slot: 100, Serial: 2},
		"of a sale that does not exist":      {ID: 2003, SaleID: "gone", Buyer: "eve", Slot: 1, Serial: 1},
	} {
		got, err := w.dead.Cancel(w.ctx, w.forge(o).ID)
		if err != nil || got.UnitReturned || got.Order.Status != sale.StatusCancelled {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		w.wantNoDeadLetter(o.ID)
		w.wantTotals("s", 4, 0)
		w.wantBalanced("s")
	}
	if got, err := w.dead.Cancel(w.ctx, bob.ID); err != nil || !got.UnitReturned {
		t.Errorf("the order that took a unit: %+v, %v", got, err)
	}
	w.wantTotals("s", 5, 0)
}

// refuse makes SQL refuse every row of a buyer.
func (w *world) refuse(buyer string) {
	w.t.Helper()
	storetest.Exec(
		w.t,
		w.url,
		fmt.Sprintf(
			"CREATE TRIGGER refuse BEFORE INSERT ON orders WHEN NEW.buyer = '%s' BEGIN SELECT RAISE(ABORT, 'no room for this "+
				"name'); END",
			buyer,
		),
	)
}

func TestDeadOrderThatCannotBeARowIsDropped(t *testing.T) {
	w := newWorld(t)
	w.refuse("eve")
	w.each(func(fault string) {
		f := *w.faults
		w.noFault()
		w.create(fault, 5)
		dead := w.makeDead(fault, "eve")

		*w.faults = f
		_, err := w.dead.Cancel(w.ctx, dead.ID)
		if w.faults.what != "" != errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("the fault was hidden: %v", err)
		}
		w.noFault()
		for range 2 {
			got, err := w.dead.Cancel(w.ctx, dead.ID)
			if err != nil || !got.UnitReturned || got.Order.Status != Dropped || got.Order.ID != dead.ID {
				t.Errorf("again: %+v, %v", got, err)
			}
		}
		w.wantNoDeadLetter(dead.ID)
		w.wantLog(dead.ID, store.DroppedDead, false)
		w.wantTotals(fault, 5, 0)
		w.wantBalanced(fault)
		if d := w.buy(fault, "eve"); d.Outcome != sale.Accepted {
			t.Errorf("its buyer got %s", d.Outcome)
		}
		// SQL refuses the order of eve, so it must not stay in the queue.
		if _, _, err := queuetest.Take(w.ctx, w.queues[space.ShardOf(fault)], 10, ""); err != nil {
			t.Fatal(err)
		}
	})
}

// The id of a dead order belongs to another order: the dead order cannot become a row, and the other order does not
// change.
func TestDeadOrderWithTheIDOfAnotherIsDropped(t *testing.T) {
	for _, forged := range []bool{true, false} {
		t.Run(fmt.Sprint("forged: ", forged), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5)
			w.create("t", 5)
			var id sale.OrderID
			if forged {
				id = w.buy("s", "bob").OrderID
				w.drain()
				w.forge(sale.Order{ID: id, SaleID: "s", Buyer: "eve", Slot: 1, Serial: 1})
			} else { // the dead order has a unit, and its id belongs to the row of another order
				id = w.makeDead("s", "eve").ID
				other := store.DeadOrder{Order: sale.Order{ID: id, SaleID: "t", Buyer: "bob", Slot: 1, Serial: 1}, Unbacked: true}
				if _, err := w.store.CancelDead(w.ctx, other); err != nil {
					t.Fatal(err)
				}
			}
			before, err := w.store.Order(w.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got, err := w.dead.Cancel(w.ctx, id)
				if err != nil || got.Order.Status != Dropped || got.UnitReturned == forged {
					t.Errorf("%+v, %v", got, err)
				}
			}
			w.wantNoDeadLetter(id)
			w.wantLog(id, store.DroppedDead, forged)
			if after, err := w.store.Order(w.ctx, id); err != nil || after != before {
				t.Errorf("the other order was %+v and is %+v, %v", before, after, err)
			}
			if forged {
				w.wantTotals("s", 4, 1)
			} else {
				w.wantTotals("s", 5, 0)
			}
			w.wantBalanced("s")
			w.wantBalanced("t")
		})
	}
}
