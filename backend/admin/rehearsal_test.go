package admin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// scheduled is a sale that opens tomorrow.
func (w *world) scheduled(id string, stock int64) sale.Sale {
	w.t.Helper()
	s := storetest.Sale(id, stock)
	s.OpensAt, s.ClosesAt = time.Now().Add(24*time.Hour), time.Time{}
	v, err := w.Create(w.ctx, s)
	if err != nil {
		w.t.Fatal(err)
	}
	return v.Sale
}

func (w *world) rehearse(saleID string, stock int64) View {
	w.t.Helper()
	v, err := w.Rehearse(w.ctx, Rehearsal{SaleID: saleID, Stock: stock, ClosesAt: time.Now().Add(time.Minute)})
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// wantNothingOf checks that neither store has a trace of a sale, in any key.
func (w *world) wantNothingOf(saleID string) {
	w.t.Helper()
	if keys, err := w.redis.Client().Keys(w.ctx, "*"+saleID+"*").Result(); err != nil || len(keys) > 0 {
		w.t.Errorf("Redis holds %v, %v", keys, err)
	}
	for _, shard := range space.All() {
		if listed, err := w.redis.Client().SIsMember(w.ctx, shard.Sales(), saleID).Result(); err != nil || listed {
			w.t.Errorf("shard %d lists it: %v, %v", shard, listed, err)
		}
	}
	if _, _, err := w.store.Sale(w.ctx, saleID); !errors.Is(err, sale.ErrNotFound) {
		w.t.Errorf("SQL has it: %v", err)
	}
}

func TestRehearsalIsACopyWithItsOwnUnits(t *testing.T) {
	w := newWorld(t)
	real := w.scheduled("shoe", 5)
	v := w.rehearse("shoe", 0)
	want := real
	want.ID, want.Title, want.OpensAt, want.ClosesAt = v.ID, "Rehearsal of "+real.Title, v.OpensAt, v.ClosesAt
	if !strings.HasPrefix(v.ID, "rehearsal-shoe-") || v.Sale != want || v.State != sale.StateOpen {
		t.Fatalf("%+v\nwant %+v", v, want)
	}
	w.buy(v.ID, "bob")
	w.drain()
	w.wantTotals(v.ID, 4, 1)
	w.wantTotals("shoe", 5, 0)
	if again := w.rehearse("shoe", 3); again.ID == v.ID || again.Stock != 3 {
		t.Errorf("another: %+v", again)
	}
	if all, err := w.Rehearsals(w.ctx); err != nil || len(all) != 2 || all[0].ID != v.ID {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := w.Create(w.ctx, storetest.Sale("rehearsal-mine", 5)); err == nil {
		t.Error("a sale was created with the id of a rehearsal")
	}
}

func TestRehearseRefusesBadRequests(t *testing.T) {
	w := newWorld(t)
	w.scheduled("shoe", 5)
	soon := time.Now().Add(time.Minute)
	for name, r := range map[string]Rehearsal{
		"no end":         {SaleID: "shoe"},
		"already over":   {SaleID: "shoe", ClosesAt: time.Now().Add(-time.Second)},
		"ends first":     {SaleID: "shoe", OpensAt: soon, ClosesAt: soon},
		"far too long":   {SaleID: "shoe", ClosesAt: time.Now().Add(maxRehearsal + time.Minute)},
		"no units":       {SaleID: "shoe", Stock: -1, ClosesAt: soon},
		"of a rehearsal": {SaleID: "rehearsal-shoe-x", ClosesAt: soon},
	} {
		var invalid *sale.InvalidError
		if v, err := w.Rehearse(w.ctx, r); !errors.As(err, &invalid) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	if _, err := w.Rehearse(w.ctx, Rehearsal{SaleID: "other", ClosesAt: soon}); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("an unknown sale: %v", err)
	}
}

func TestRehearsalIsRejectedDuringRealSales(t *testing.T) {
	w := newWorld(t)
	w.scheduled("shoe", 5)
	try := func(beside bool, ends time.Duration) error {
		_, err := w.Rehearse(w.ctx, Rehearsal{SaleID: "shoe", ClosesAt: time.Now().Add(ends), BesideRealSales: beside})
		return err
	}
	later := storetest.Sale("later", 5)
	later.OpensAt, later.ClosesAt = time.Now().Add(30*time.Minute), time.Time{}
	if _, err := w.Create(w.ctx, later); err != nil {
		t.Fatal(err)
	}
	var busy *store.RefusedError
	if err := try(false, time.Hour); !errors.As(err, &busy) || !strings.Contains(busy.Detail, "later") {
		t.Errorf("one opens meanwhile: %v", err)
	}
	if err := try(false, time.Minute); err != nil {
		t.Fatalf("one opens afterwards: %v", err)
	}
	w.create("now", 5)
	if err := try(false, time.Minute); !errors.As(err, &busy) || !strings.Contains(busy.Detail, "now") {
		t.Errorf("one is open: %v", err)
	}
	if err := try(false, time.Hour); !errors.As(err, &busy) || !strings.Contains(busy.Detail, "sale now is open.") ||
		!strings.Contains(busy.Detail, "sale later opens at") {
		t.Errorf("one is open and one opens meanwhile: %v", err)
	}
	if err := try(true, time.Minute); err != nil {
		t.Errorf("a repeated request: %v", err)
	}
	w.practice = []string{"now"}
	if err := try(false, time.Minute); err != nil {
		t.Errorf("the open sale is for practice: %v", err)
	}
}

func TestRemoveRehearsalLeavesNothingAfterAnyCrash(t *testing.T) {
	w := newWorld(t)
	w.scheduled("shoe", 5)
	w.buyRehearsed(t, func(id string) {
		if _, err := w.RemoveRehearsal(w.ctx, id); w.faults.what != "" && err == nil {
			t.Error("the fault was hidden")
		}
		w.noFault()
		if err := w.RunOnce(w.ctx); err != nil { // of any backend
			t.Error(err)
		}
		if d := w.buy(id, "late"); d.Outcome == sale.Accepted && w.faults.what != "SetSwitch" {
			t.Errorf("it sells after a remove that failed at %s", w.faults.what)
		}
		w.drain()
		if _, err := w.RemoveRehearsal(w.ctx, id); err != nil && !errors.Is(err, sale.ErrNotFound) {
			t.Error(err)
		}
		if _, err := w.RemoveRehearsal(w.ctx, id); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("a third time: %v", err)
		}
		w.wantNothingOf(id)
	})
	w.wantTotals("shoe", 5, 0)
	if _, err := w.RemoveRehearsal(w.ctx, "shoe"); err == nil {
		t.Fatal("a real sale was removed")
	}
}

// hookedStore is a store that calls afterSwitch after each change of a switch.
type hookedStore struct {
	Store
	afterSwitch func()
}

func (s hookedStore) SetSwitch(ctx context.Context, id string, to sale.Switch) (sale.Sale, error) {
	changed, err := s.Store.SetSwitch(ctx, id, to)
	s.afterSwitch()
	return changed, err
}

func TestConcurrentRemovalsOfARehearsalLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.scheduled("shoe", 5)
	id := w.rehearse("shoe", 0).ID
	slow := New(Config{Stock: w.stock, Shards: w.dead.shards, Store: hookedStore{w.store, func() {
		if _, err := w.RemoveRehearsal(w.ctx, id); err != nil {
			t.Error(err)
		}
	}}})
	if _, err := slow.RemoveRehearsal(w.ctx, id); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("the rehearsal was removed in the meantime: %v", err)
	}
	w.wantNothingOf(id)
}

// buyRehearsed creates rehearsals, each with a row and a dead order, and runs try on one for each call of a store, with
// a fault at that call.
func (w *world) buyRehearsed(t *testing.T, try func(id string)) {
	t.Helper()
	w.each(func(string) {
		f := *w.faults
		w.noFault()
		id := w.rehearse("shoe", 0).ID
		w.makeDead(id, "bob")
		w.buy(id, "cat")
		w.drain()
		*w.faults = f
		try(id)
	})
}

func TestSweepRemovesOldRehearsals(t *testing.T) {
	w := newWorld(t)
	shoe := w.scheduled("shoe", 5)
	fresh := w.rehearse("shoe", 0)
	old := fresh.Sale
	old.ID, old.OpensAt, old.ClosesAt = "rehearsal-shoe-old", time.Now().
		Add(-time.Hour),
		time.Now().
			Add(-rehearsalRetention)
	if _, err := w.store.CreateSale(w.ctx, old); err != nil {
		t.Fatal(err)
	}
	lost := fresh.Sale
	lost.ID = "rehearsal-shoe-lost" // only in Redis, loaded by a process that read SQL before the removal
	if err := w.stock.Load(w.ctx, lost,
		func(context.Context, spread.Part, func(sale.Order) error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := w.RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.sweepRehearsals(w.ctx)
	w.wantNothingOf(old.ID)
	w.wantNothingOf(lost.ID)
	if v := w.view(fresh.ID); v.State != sale.StateOpen {
		t.Errorf("one in progress is %s", v.State)
	}
	w.wantTotals(shoe.ID, 5, 0)
}

// removedFromSQL creates a rehearsal with a segment in each shard, which SQL does not have any more, and starts a new
// process. A rebuild has suspended the rehearsal and holds the shards.
func (w *world) removedFromSQL() (id string) {
	w.t.Helper()
	s := storetest.Sale("wide", 4)
	s.OpensAt, s.ClosesAt, s.Spread = time.Now().Add(24*time.Hour), time.Time{}, shards
	if _, err := w.Create(w.ctx, s); err != nil {
		w.t.Fatal(err)
	}
	id = w.rehearse("wide", 0).ID
	if _, err := w.store.SetSwitch(w.ctx, id, sale.Closed); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.RemoveRehearsal(w.ctx, id); err != nil {
		w.t.Fatal(err)
	}
	for _, shard := range space.All() {
		w.redis.Client().HDel(w.ctx, shard.Sale(id), "version", "switch")
		w.hold(shard)
	}
	w.Service.stock = admission.NewStock(admission.StockConfig{Client: w.redis.Client(), Space: space, Claimer: w.store})
	return id
}

func (w *world) hold(shard keyspace.Shard) {
	w.redis.Client().HSet(w.ctx, shard.Guard(), "rebuilding", 1)
}

func (w *world) release(shard keyspace.Shard) {
	w.redis.Client().HDel(w.ctx, shard.Guard(), "rebuilding")
}

// wantHeld checks whether each shard holds a part of a sale.
func (w *world) wantHeld(saleID string, held ...bool) {
	w.t.Helper()
	for i, shard := range space.All() {
		n, err := w.redis.Client().Exists(w.ctx, shard.Sale(saleID), shard.Stock(saleID), shard.Buyers(saleID)).Result()
		if err != nil || (n > 0) != held[i] {
			w.t.Errorf("shard %d has %d keys of the rehearsal, %v; want some: %v", shard, n, err, held[i])
		}
	}
}

func TestRemoveRehearsalRemovesSuspendedSegments(t *testing.T) {
	w := newWorld(t)
	id := w.removedFromSQL()
	home := w.stock.ShardOf(spread.Part{SaleID: id, Spread: shards})
	w.release(home)
	if _, err := w.RemoveRehearsal(w.ctx, id); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("while a shard is rebuilt: %v", err)
	}
	w.wantHeld(id, true, true)
	w.release(1 - home)
	if _, err := w.RemoveRehearsal(w.ctx, id); !errors.Is(err, sale.ErrNotFound) {
		t.Error(err)
	}
	w.wantNothingOf(id)
}

func TestSweepRemovesSuspendedRehearsals(t *testing.T) {
	w := newWorld(t)
	id := w.removedFromSQL()
	w.release(0)
	for range 2 {
		w.sweepRehearsals(w.ctx)
		w.wantHeld(id, false, true) // only the remaining segment exists
	}
	w.release(1)
	var sweeps sync.WaitGroup
	for range 2 { // two backends
		sweeps.Go(func() { w.sweepRehearsals(w.ctx) })
	}
	sweeps.Wait()
	w.wantNothingOf(id)
}

// summariesThen calls then after SQL was read.
type summariesThen struct {
	Store
	then func()
}

func (s summariesThen) SaleSummaries(ctx context.Context) ([]store.SaleSummary, error) {
	found, err := s.Store.SaleSummaries(ctx)
	s.then()
	return found, err
}

func TestSweepKeepsARehearsalCreatedDuringIt(t *testing.T) {
	w := newWorld(t)
	w.scheduled("shoe", 5)
	var id string
	created := summariesThen{w.store, func() { id = w.rehearse("shoe", 0).ID }}
	sweeping := New(Config{Store: created, Stock: w.stock, Shards: w.dead.shards})
	sweeping.sweepRehearsals(w.ctx)
	if v := w.view(id); v.State != sale.StateOpen {
		t.Errorf("it is %s", v.State)
	}
}
