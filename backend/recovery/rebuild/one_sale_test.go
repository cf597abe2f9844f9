package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// A sale that does not balance after the rebuild is paused with the reason. Other sales continue.
func TestSaleThatDoesNotBalanceIsPaused(t *testing.T) {
	w := newWorld(t)
	w.create("good", 5, 1)
	w.create("bad", 5, 1)
	w.buy("good", "ann")
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Pause: func(ctx context.Context, id, reason string) error {
			w.paused[id] = reason
			_, err := w.store.SetSwitch(ctx, id, sale.Paused)
			return err
		},
		Step: func(name string) error {
			if name == "audit" {
				w.raw().Incr(w.ctx, space.ShardOf("bad").Stock("bad"))
			}
			return nil
		},
	})
	w.runWithoutJournal()
	if len(w.paused) != 1 || w.paused["bad"] == "" {
		t.Fatalf("paused sales: %v", w.paused)
	}
	if d, err := w.try("bad", "bob"); err != nil || d.Outcome != sale.SalePaused {
		t.Errorf("bad: %v, %v", d.Outcome, err)
	}
	w.buy("good", "bob")
	w.start()
	w.check()
	w.run("bad")
	w.want("bad", 5, 0, 0, 0, 0)
}

func TestRebuildOfOneSaleKeepsTheOrderOfOthers(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	var other string // in the same shard
	for i := 0; other == "" || space.ShardOf(other) != space.ShardOf("s"); i++ {
		other = fmt.Sprint("other", i)
	}
	w.create(other, 5, 1)
	var bought []sale.OrderID
	for i := range 5 {
		bought = append(bought, w.buy(other, fmt.Sprint("b", i)))
	}
	w.run("s")
	var kept []sale.OrderID
	for _, m := range w.take(other, 5).Messages {
		kept = append(kept, m.ID)
	}
	if !slices.Equal(kept, bought) {
		t.Errorf("queued %v after the rebuild, want %v", kept, bought)
	}
}

// A server that was promoted and has no replicas clears the id of the server that it followed after an hour. Its data
// is verified as before, so a rebuild of one sale rebuilds no other.
func TestRebuildOfOneSaleOnAServerThatWasPromoted(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.create("other", 5, 1)
	followed := w.raw().HGet(w.ctx, space.ShardOf("s").Guard(), "run_id").Val() + ".f"
	w.raw().HSet(w.ctx, space.ShardOf("s").Guard(), "run_id", followed)
	w.check()
	w.run("s")
	if sales := w.rebuild.Status().Sales; len(sales) != 1 || sales[0].SaleID != "s" {
		t.Errorf("rebuilt %+v, want only s", sales)
	}
}

// A hold that is begun again, because the response was lost, begins as before; one of other data does not.
func TestHoldBeginsAgain(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	shard := space.ShardOf("s")
	runID := w.raw().HGet(w.ctx, shard.Guard(), "run_id").Val()
	deployment, _, err := w.store.Generation(w.ctx, int(shard))
	if err != nil {
		t.Fatal(err)
	}
	owner := guard.Owner{Deployment: deployment, Shards: len(space.All())}
	fence, err := rebuild.NextFence(w.ctx, w.store, shard, w.raw())
	if err != nil {
		t.Fatal(err)
	}
	h := rebuild.NewHold(w.raw(), shard, owner, fence)
	if err := h.Begin(w.ctx, "other", ""); !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("begun with another id: %v", err)
	}
	for range 2 {
		if err := h.Begin(w.ctx, runID, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// During the rebuild of one sale nothing can be bought from the others of its shard, also from a process that has not
// noticed the rebuild: the order would not be in the new queue. They continue as they were.
func TestRebuildOfOneSaleSuspendsTheOthers(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"s", "other", "paused"} {
		w.create(id, 5, 1)
	}
	paused, err := w.store.SetSwitch(w.ctx, "paused", sale.Paused)
	if err == nil {
		err = w.stock.Update(w.ctx, paused)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.buy("other", "ann")
	seller := admissiontest.NewAdmitter(w.t, w.raw(), space)
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(name string) error {
			if name != "swap" {
				return nil
			}
			d, err := seller.Admit(w.ctx, admission.Request{SaleID: "other", Buyer: "bob", Key: "k", KeyTTL: time.Minute})
			if d.Outcome != sale.UnknownSale {
				t.Errorf("a purchase during the rebuild: %v, %v", d.Outcome, err)
			}
			return nil
		},
	})
	if err := w.rebuild.Run(w.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.want("other", 4, 1, 0, 0, 0)
	w.buy("other", "bob")
	w.want("other", 3, 2, 0, 0, 0)
	if d, err := w.try("paused", "ann"); err != nil || d.Outcome != sale.SalePaused {
		t.Errorf("the paused sale: %v, %v", d.Outcome, err)
	}
}

// pausingDatabase calls pause after the first read of the sales.
type pausingDatabase struct {
	*database
	pause func()
}

func (d *pausingDatabase) SaleSummaries(ctx context.Context) ([]store.SaleSummary, error) {
	all, err := d.database.SaleSummaries(ctx)
	if d.pause != nil {
		d.pause()
		d.pause = nil
	}
	return all, err
}

// A sale that is paused just before a rebuild suspends it remains paused.
func TestSaleThatIsPausedAtTheBeginOfARebuildStaysPaused(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	pause := func() {
		paused, err := w.store.SetSwitch(w.ctx, "s", sale.Paused)
		if err == nil {
			err = admission.NewStock(admission.StockConfig{Client: w.raw(), Space: space}).Update(w.ctx, paused)
		}
		if err != nil {
			t.Error(err)
		}
	}
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: &pausingDatabase{w.store, pause}, Space: space,
	})
	w.run()
	if d, err := w.try("s", "ann"); err != nil || d.Outcome != sale.SalePaused {
		t.Errorf("a purchase: %v, %v", d.Outcome, err)
	}
}

// A sale that is removed while it is rebuilt would be stored again by the rebuild: the removal fails.
func TestSaleIsNotRemovedWhileItIsRebuilt(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	def := storetest.Sale("s", 5)
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(name string) error {
			if name != "sales" {
				return nil
			}
			if err := w.stock.Remove(w.ctx, def); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("during the rebuild: %v, want ErrUnavailable", err)
			}
			return nil
		},
	})
	w.run()
	if err := w.stock.Remove(w.ctx, def); err != nil {
		t.Error(err)
	}
	shard := space.ShardOf("s")
	keys := []string{shard.Sales(), shard.Sale("s"), shard.Stock("s"), shard.Buyers("s"), shard.Returns("s")}
	if n, err := w.raw().Exists(w.ctx, keys...).Result(); err != nil || n > 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}
