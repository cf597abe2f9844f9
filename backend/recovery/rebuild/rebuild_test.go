package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestRebuildOfAnIntactRedisChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	w.fill("other")
	// On a slow machine the second fill may take the order of the first that is to be retried.
	before, other := w.audit("s"), w.audit("other")
	queued := before.Ready + before.Delayed + before.Leased
	w.run()
	w.want("s", before.Left, queued, before.Ordered, before.Dead, 0)
	for _, s := range w.rebuild.Status().Sales {
		if s.Requeued != 0 || s.Unbacked != 0 || s.Corrected != 0 || !s.Balanced {
			t.Errorf("the rebuild changed an intact Redis: %+v", s)
		}
	}
	w.drain()
	w.want("s", before.Left, 0, before.Ordered+queued, before.Dead, 0)
	w.want("other", other.Left, 0, other.Ordered+other.Ready+other.Delayed+other.Leased, other.Dead, 0)
	if d, err := w.try("s", "b0"); err != nil || d.Outcome != sale.AlreadyBought {
		t.Errorf("a buyer with two orders: %v, %v", d.Outcome, err)
	}
	if d, err := w.try("s", "b1"); err != nil || d.Outcome != sale.Accepted {
		t.Errorf("a buyer with one of two orders: %v, %v", d.Outcome, err)
	}
	if len(w.paused) > 0 {
		t.Errorf("paused sales: %v", w.paused)
	}
}

func TestRebuildOfAnEmptyRedisRestoresTheJournal(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	w.raw().FlushAll(w.ctx)
	w.check()
	if _, err := w.try("s", "late"); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("purchase in an emptied Redis: %v", err)
	}
	w.run()
	w.want("s", 21, 5, 4, 0, 0) // the dead order is queued again without its failure
	w.drain()
	w.want("s", 21, 0, 9, 0, 0)
	w.run()
	w.want("s", 21, 0, 9, 0, 0)
}

func TestRebuildOfAnEmptyRedisWithoutJournalKeepsTheRows(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	w.want("s", 26, 0, 4, 0, 0)
	if d, err := w.try("s", "b7"); err != nil || d.Outcome != sale.Accepted {
		t.Errorf("buyer of a lost order: %v, %v", d.Outcome, err)
	}
}

// Redis returns with older data. Later orders are rows, leased messages, and records in the journal.
func TestRebuildOfAnOlderRedis(t *testing.T) {
	w := newWorld(t)
	w.create("s", 10, 1)
	for i := range 3 {
		w.buy("s", fmt.Sprint("early", i))
	}
	w.write("s", 1)
	older := w.copyOf()
	for i := range 5 {
		w.buy("s", fmt.Sprint("late", i))
	}
	w.write("s", 4) // early1, early2, late0, late1
	w.put(older)
	w.check()
	if _, err := w.try("s", "late3"); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("purchase in an older Redis: %v", err)
	}
	w.run()
	w.want("s", 2, 3, 5, 0, 0)
	w.drain()
	w.want("s", 2, 0, 8, 0, 0)
	for _, buyer := range []string{"early0", "late0", "late4"} {
		if d, err := w.try("s", buyer); err != nil || d.Outcome != sale.AlreadyBought {
			t.Errorf("buyer %s: %v, %v", buyer, d.Outcome, err)
		}
	}
}

// An order that was cancelled after the copy keeps neither its slot nor its message.
func TestRebuildDropsCancelledOrders(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.buy("s", "bob")
	dead := w.kill("s")
	older := w.copyOf()
	q := w.shard("s")
	letter, err := q.BeginCancel(w.ctx, dead)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.CancelDead(w.ctx, store.DeadOrder{Order: letter.Message}); err != nil {
		t.Fatal(err)
	}
	if err := q.FinishCancel(w.ctx, dead, true); err != nil {
		t.Fatal(err)
	}
	w.want("s", 4, 1, 0, 0, 0)
	w.put(older)
	w.run()
	w.want("s", 4, 1, 0, 0, 0)
	w.buy("s", "ann")
	w.drain()
	w.want("s", 3, 0, 2, 0, 0)
}

// The unit of an order that was cancelled in SQL is returned once, whenever Redis loses its data.
func TestRebuildCountsReturningUnitsOnce(t *testing.T) {
	for name, returned := range map[string]bool{"lost before the return": false, "lost after the return": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, 1)
			for _, buyer := range []string{"ann", "bob", "cid"} {
				w.buy("s", buyer)
			}
			id := w.take("s", 1).Messages[0].ID
			w.drain()
			older := w.copyOf()
			if err := w.store.Write(w.ctx, []sale.Order{{ID: id, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}}); err != nil {
				t.Fatal(err)
			}
			b, _, err := w.store.CancelOrder(w.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			returnUnit := func(marked bool) {
				numbers, err := w.stock.ReturnUnits(w.ctx, spread.Part{SaleID: "s"}, []sale.Order{b})
				if err != nil || len(numbers) != 1 {
					t.Fatal(numbers, err)
				}
				if !marked {
					return
				}
				if err := w.store.MarkReturned(w.ctx, []store.Return{{ID: id, Number: numbers[0]}}); err != nil {
					t.Fatal(err)
				}
				if err := w.stock.ConfirmReturns(w.ctx, spread.Part{SaleID: "s"}, []sale.Order{b}); err != nil {
					t.Fatal(err)
				}
			}
			if returned {
				returnUnit(false) // SQL does not have the number
			}
			w.put(older)
			w.run()
			w.want("s", 3, 0, 2, 0, 0)
			returnUnit(true)
			w.want("s", 3, 0, 2, 0, 0)
			w.run()
			w.want("s", 3, 0, 2, 0, 0)
			w.buy("s", "ann")
			w.drain()
			w.want("s", 2, 0, 3, 0, 0)
		})
	}
}

// A slot that was lost while it moved lacks some keys. The messages of a batch without a lease return to the queue.
func TestRebuildFindsBatchesWithoutALease(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.run()
	w.check()
	ann, ben := w.buy("s", "ann"), w.buy("s", "ben")
	b := w.take("s", 1)
	shard := keyspace.Shard(0)
	w.raw().Del(w.ctx, shard.Leases(), shard.Buyers("s"))
	w.run()
	w.check()
	if n := w.raw().Exists(w.ctx, shard.Batch(b.ID)).Val(); n != 0 {
		t.Errorf("the batch is still there")
	}
	w.want("s", 3, 2, 0, 0, 0)
	var queued []sale.OrderID
	for _, o := range w.take("s", 2).Messages {
		queued = append(queued, o.ID)
	}
	if !slices.Equal(queued, []sale.OrderID{ann, ben}) {
		t.Errorf("queued: %v, want %v and %v", queued, ann, ben)
	}
}

// SQL loses a commit after the acknowledgement: only the slot of the order is left.
func TestRebuildQueuesSlotsWithoutRows(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	id := w.buy("s", "ann")
	b := w.take("s", 1)
	if _, err := w.shard("s").Ack(w.ctx, b.ID); err != nil { // the write was lost
		t.Fatal(err)
	}
	w.buy("s", "bob")
	w.run()
	w.want("s", 3, 2, 0, 0, 0)
	if s := w.rebuild.Status().Sales; len(s) != 1 || s[0].Requeued != 1 {
		t.Errorf("%+v", s)
	}
	w.drain()
	if o, err := w.store.Order(w.ctx, id); err != nil || o.Buyer != "ann" {
		t.Errorf("%+v, %v", o, err)
	}
}

// The unit of an order that only the journal has was sold again: the order becomes a dead letter without a unit, and
// can be retried after a restock.
func TestRestoredOrderWithoutUnitBecomesADeadLetter(t *testing.T) {
	w := newWorld(t)
	first := w.soldAgain()
	q := w.shard("s")
	letter, err := q.DeadLetter(w.ctx, first)
	if err != nil || !letter.Unbacked {
		t.Fatalf("%+v, %v", letter, err)
	}
	if err := q.RetryDead(w.ctx, first); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("retry of an order without a unit: %v", err)
	}
	w.run()
	w.want("s", 0, 1, 0, 0, 1)
	w.restock("s", 1)
	if err := q.RetryDead(w.ctx, first); err != nil {
		t.Fatal(err)
	}
	w.want("s", 0, 2, 0, 0, 0)
	w.drain()
	w.want("s", 0, 0, 2, 0, 0)
	if o, err := w.store.Order(w.ctx, first); err != nil || o.Buyer != "ann" {
		t.Errorf("%+v, %v", o, err)
	}
}

// A dead order without a unit is decided by an admin. A rebuild does not queue it, also if Redis has a slot for it.
func TestRebuildDoesNotQueueSlotsOfDeadOrders(t *testing.T) {
	w := newWorld(t)
	first := w.soldAgain()
	w.restock("s", 1)
	if err := w.raw().HSet(w.ctx, space.ShardOf("s").Buyers("s"), "ann", first.String()).Err(); err != nil {
		t.Fatal(err)
	}
	w.run("s")
	w.want("s", 1, 1, 0, 0, 1)
	if s := w.rebuild.Status().Sales; len(s) != 1 || s[0].Requeued != 0 {
		t.Errorf("%+v", s)
	}
}

// Another order has taken the slot of a dead order. If the limit permits, the dead order gets the next slot.
func TestDeadOrderMovesToAnotherSlot(t *testing.T) {
	for perBuyer, name := range map[int]string{2: "empty slot", 1: "no empty slot"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, perBuyer)
			w.buy("s", "ann")
			dead := w.kill("s")
			other := sale.Order{ID: dead + 1, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 2}
			if err := w.store.Write(w.ctx, []sale.Order{other}); err != nil {
				t.Fatal(err)
			}
			w.run("s")
			if perBuyer == 1 {
				w.want("s", 4, 0, 1, 0, 1)
				return
			}
			w.want("s", 3, 0, 1, 1, 0)
			if err := w.shard("s").RetryDead(w.ctx, dead); err != nil {
				t.Fatal(err)
			}
			w.drain()
			w.want("s", 3, 0, 2, 0, 0)
			if o, err := w.store.Order(w.ctx, dead); err != nil || o.Slot != 2 {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
}

func TestCancelOfAnUnbackedOrderReturnsNoUnit(t *testing.T) {
	w := newWorld(t)
	w.create("s", 1, 1)
	first := w.buy("s", "ann")
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	w.buy("s", "ann") // the same buyer
	w.restoreJournal()
	w.want("s", 0, 1, 0, 0, 1)
	q := w.shard("s")
	letter, err := q.BeginCancel(w.ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.CancelDead(w.ctx, store.DeadOrder{Order: letter.Message}); err != nil {
		t.Fatal(err)
	}
	if err := q.FinishCancel(w.ctx, first, true); err != nil {
		t.Fatal(err)
	}
	w.want("s", 0, 1, 0, 0, 0)
	if d, err := w.try("s", "ann"); err != nil || d.Outcome != sale.AlreadyBought {
		t.Errorf("the cancellation released the slot of another order: %v, %v", d.Outcome, err)
	}
}

// A database that was restored from an older backup does not know the latest rebuilds. The guard detects it, and the
// rebuild that follows queues the orders that the database has lost.
func TestRebuildAfterTheDatabaseWasRestored(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.write("s", 1)
	before := w.guard.Generation()
	w.run()
	w.buy("s", "ben")
	storetest.Exec(t, w.url, "DELETE FROM orders")
	storetest.Exec(t, w.url, fmt.Sprintf("UPDATE counters SET n = %d WHERE name IN ('generation', 'fence')", before))
	w.check()
	if _, ok := w.guard.Verified(); ok {
		t.Fatal("the restored database was not detected")
	}
	latest := w.guard.Generation()
	if err := w.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true }); err != nil {
		t.Fatal(err)
	}
	w.check()
	if reason, ok := w.guard.Verified(); !ok || w.guard.Generation() <= latest {
		t.Fatalf("verified %v (%s), generation %d after %d", ok, reason, w.guard.Generation(), latest)
	}
	w.want("s", 3, 2, 0, 0, 0)
	w.drain()
	w.want("s", 3, 0, 2, 0, 0)
}

// Only a rebuild of all sales that an admin requests uses the data of another deployment.
func TestRebuildOfAnotherDeployment(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.store.ClaimDeployment(w.ctx, shards); err != nil {
		t.Fatal(err)
	}
	w.fill("s")
	w.run()
	storetest.Exec(t, w.url, "UPDATE counters SET n = n / 2 WHERE name = 'deployment'")
	w.check()
	if reason, ok := w.guard.Verified(); ok || !strings.Contains(reason, "sluice sale rebuild --all") {
		t.Fatalf("another deployment: verified %v, reason %q", ok, reason)
	}
	before := w.copyOf()
	for name, err := range map[string]error{
		"automatic":   w.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true }),
		"of one sale": w.rebuild.Run(w.ctx, "s"),
	} {
		if _, foreign := errors.AsType[*guard.DeploymentError](err); !foreign {
			t.Errorf("rebuild %s: %v", name, err)
		}
	}
	if !maps.Equal(before, w.copyOf()) {
		t.Error("a rebuild changed data")
	}
	w.run()
	w.audit("s")
}

// A sale that only Redis has stops selling, because its orders cannot become rows, and continues when it is created
// again.
func TestRebuildSuspendsASaleThatTheDatabaseLacks(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	storetest.Exec(t, w.url, "DELETE FROM sales")
	w.run()
	if d, err := w.try("s", "ben"); err == nil && d.Outcome == sale.Accepted {
		t.Fatal("a sale that the database lacks sold a unit")
	}
	if _, err := w.store.CreateSale(w.ctx, storetest.Sale("s", 5)); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.want("s", 4, 1, 0, 0, 0)
	w.buy("s", "ben")
	w.drain()
	w.want("s", 3, 0, 2, 0, 0)
}

// A batch that was taken before a rebuild is not written. Its orders are restored.
func TestBatchOfAnOlderGenerationIsRestored(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	generation := w.guard.Generation()
	b := w.take("s", 1)
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	if err := w.store.Write(store.WithGeneration(w.ctx, 0, generation), b.Messages); !errors.Is(err, store.ErrStale) {
		t.Fatalf("the batch was written after the rebuild: %v", err)
	}
	w.want("s", 5, 0, 0, 0, 0)
	restorer := rebuild.NewRestorer(w.guard, w.raw(), 0, w.store)
	for range 2 {
		if _, err := restorer.RestoreAt(w.ctx, w.guard.Generation(), b.Messages); err != nil {
			t.Fatal(err)
		}
		w.want("s", 4, 1, 0, 0, 0)
	}
	if _, err := restorer.RestoreAt(w.ctx, generation, b.Messages); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("restored at an older fence: %v", err)
	}
}

// The clock of an earlier Redis was ahead, so the number of its last return is above the clock of an empty one. The
// rebuild numbers returns from above the last one in SQL, and the sale balances.
func TestReturnsAreNumberedAboveThoseOfAClockThatWasAhead(t *testing.T) {
	w := newWorld(t)
	w.create("s", 10, 1)
	w.returnUnit("s", "ann")
	ahead := time.Now().Add(24 * time.Hour).UnixMicro()
	storetest.Exec(t, w.url, fmt.Sprintf("UPDATE orders SET return_number = %d WHERE return_number > 0", ahead))
	w.raw().FlushAll(w.ctx)
	w.run()
	w.want("s", 10, 0, 0, 0, 0)
	w.returnUnit("s", "bob")
	w.want("s", 10, 0, 0, 0, 0)
	if len(w.paused) > 0 {
		t.Errorf("paused: %v", w.paused)
	}
}
