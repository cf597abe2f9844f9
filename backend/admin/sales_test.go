package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue/queuetest"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestCreateAppliesDefaultsAndLoadsRedis(t *testing.T) {
	w := newWorld(t)
	s := storetest.Sale("", 5)
	s.PerBuyer, s.Switch, s.Version = 0, "", 0
	v, err := w.Create(w.ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.ID) != 10 || sale.ValidateID(v.ID) != nil || v.PerBuyer != 1 || v.Switch != sale.On || v.Version != 1 ||
		v.State != sale.StateOpen {
		t.Fatalf("created %+v", v)
	}
	if v.Live == nil || v.Live.Left != 5 || v.Live.Sale != v.Sale {
		t.Fatalf("in Redis %+v", v.Live)
	}
	if d := w.buy(v.ID, "bob"); d.Outcome != sale.Accepted {
		t.Fatalf("a buyer got %s", d.Outcome)
	}
	other, err := w.Create(w.ctx, s)
	if err != nil || other.ID == v.ID {
		t.Fatalf("second sale without an id: %q, %v", other.ID, err)
	}
	if log, err := w.store.Log(w.ctx, store.LogQuery{Limit: 10}); err != nil || len(log) != 2 || log[0].Actor != "ann" ||
		log[0].Action != "sale.create" {
		t.Fatalf("log %+v, %v", log, err)
	}
}

func TestRepeatedCreateReturnsTheSameSaleOnly(t *testing.T) {
	w := newWorld(t)
	s := storetest.Sale("s", 5)
	s.OpensAt = time.Now().Add(-time.Hour).In(time.FixedZone("", 3600)) // with nanoseconds, which are not stored
	s.ClosesAt = s.OpensAt.Add(9 * time.Hour)
	if _, err := w.Create(w.ctx, s); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Restock(w.ctx, "s", 3, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.SetSwitch(w.ctx, "s", sale.Paused); err != nil {
		t.Fatal(err)
	}
	if v, err := w.Create(w.ctx, s); err != nil || v.Switch != sale.Paused || v.Version != 3 || v.Stock != 8 {
		t.Fatalf("the same again: %+v, %v", v, err)
	}
	for what, change := range map[string]func(*sale.Sale){
		"title":     func(s *sale.Sale) { s.Title += "!" },
		"price":     func(s *sale.Sale) { s.Price.Amount++ },
		"stock":     func(s *sale.Sale) { s.Stock++ },
		"restocked": func(s *sale.Sale) { s.Stock += 3 },
		"per buyer": func(s *sale.Sale) { s.PerBuyer++ },
		"hold":      func(s *sale.Sale) { s.Hold = time.Hour },
		"opens at":  func(s *sale.Sale) { s.OpensAt = s.OpensAt.Add(time.Millisecond) },
		"closes at": func(s *sale.Sale) { s.ClosesAt = time.Time{} },
	} {
		other := s
		change(&other)
		if _, err := w.Create(w.ctx, other); !errors.Is(err, sale.ErrExists) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	var invalid *sale.InvalidError
	if _, err := w.Create(w.ctx, sale.Sale{}); !errors.As(err, &invalid) || len(invalid.Fields) < 3 {
		t.Errorf("an empty sale: %v", err)
	}
}

func TestSwitchAndRestockReachBuyers(t *testing.T) {
	w := newWorld(t)
	w.create("s", 1)
	outcome := func(buyer string, want sale.Outcome) {
		t.Helper()
		if d := w.buy("s", buyer); d.Outcome != want {
			t.Fatalf("%s got %s, want %s", buyer, d.Outcome, want)
		}
	}
	want := func(v View, err error, state sale.State, version int64) {
		t.Helper()
		if err != nil || v.State != state || v.Version != version || v.Live == nil || v.Live.Version != version {
			t.Fatalf("%+v, %v; want %s at version %d", v, err, state, version)
		}
	}
	v, err := w.SetSwitch(w.ctx, "s", sale.Paused)
	want(v, err, sale.StatePaused, 2)
	outcome("ann", sale.SalePaused)
	v, err = w.SetSwitch(w.ctx, "s", sale.On)
	want(v, err, sale.StateOpen, 3)
	outcome("ann", sale.Accepted)
	outcome("bob", sale.SoldOut)
	for range 2 {
		v, err = w.Restock(w.ctx, "s", 1, "key")
		want(v, err, sale.StateOpen, 4)
	}
	outcome("bob", sale.Accepted)
	outcome("cid", sale.SoldOut)
	v, err = w.SetSwitch(w.ctx, "s", sale.Closed)
	want(v, err, sale.StateClosed, 5)
	outcome("cid", sale.SaleClosed)

	if _, err := w.SetSwitch(w.ctx, "s", sale.On); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("resumed a closed sale: %v", err)
	}
	if _, err := w.Restock(w.ctx, "s", 1, ""); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("restocked a closed sale: %v", err)
	}
	if _, err := w.SetSwitch(w.ctx, "unknown", sale.Paused); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("paused an unknown sale: %v", err)
	}
	if _, err := w.Show(w.ctx, "unknown"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("showed an unknown sale: %v", err)
	}
}

// A sale that is opened early sells immediately, and opening it again changes nothing.
func TestOpenNowReachesBuyers(t *testing.T) {
	w := newWorld(t)
	later := time.Now().Add(time.Hour)
	if _, err := w.Create(w.ctx, saleAt("s", later)); err != nil {
		t.Fatal(err)
	}
	if d := w.buy("s", "bob"); d.Outcome != sale.NotOpen {
		t.Fatalf("before its time: %s", d.Outcome)
	}
	for range 2 {
		v, err := w.Open(w.ctx, "s")
		if err != nil || v.State != sale.StateOpen || v.Version != 2 || v.Live == nil || v.Live.Version != 2 ||
			!v.OpensAt.Before(time.Now()) ||
			v.Live.Left != 5 {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if d := w.buy("s", "bob"); d.Outcome != sale.Accepted {
		t.Fatalf("after it was opened: %s", d.Outcome)
	}
	log, err := w.store.Log(w.ctx, store.LogQuery{Target: "s", Limit: 10})
	if err != nil || len(log) != 2 || log[0].Action != "sale.open" || log[0].Actor != "ann" ||
		!strings.Contains(log[0].Detail, later.UTC().Format(time.RFC3339)) {
		t.Errorf("action log: %+v, %v", log, err)
	}

	over := saleAt("over", time.Now().Add(-2*time.Hour))
	over.ClosesAt = time.Now().Add(-time.Hour)
	if _, err := w.Create(w.ctx, over); err != nil {
		t.Fatal(err)
	}
	if _, err := w.SetSwitch(w.ctx, "s", sale.Closed); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]error{"s": sale.ErrConflict, "over": sale.ErrConflict, "unknown": sale.ErrNotFound} {
		if _, err := w.Open(w.ctx, id); !errors.Is(err, want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := w.Create(w.ctx, saleAt("paused", later)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.SetSwitch(w.ctx, "paused", sale.Paused); err != nil {
		t.Fatal(err)
	}
	if v, err := w.Open(w.ctx, "paused"); err != nil || v.State != sale.StatePaused {
		t.Errorf("a paused one: %+v, %v", v, err)
	}
	if v, err := w.SetSwitch(w.ctx, "paused", sale.On); err != nil || v.State != sale.StateOpen {
		t.Errorf("and then: %+v, %v", v, err)
	}
}

// If a process crashes at any call during a change, the reconcile loop updates Redis to the state of SQL. Repeating the
// change is harmless.
func TestChangeIsAppliedAfterAnyCrash(t *testing.T) {
	w := newWorld(t)
	opened := time.Now().Add(-time.Hour)
	changes := map[string]func(id string) (View, error){
		"create":  func(id string) (View, error) { return w.Create(w.ctx, saleAt(id, opened)) },
		"pause":   func(id string) (View, error) { return w.SetSwitch(w.ctx, id, sale.Paused) },
		"close":   func(id string) (View, error) { return w.SetSwitch(w.ctx, id, sale.Closed) },
		"open":    func(id string) (View, error) { return w.Open(w.ctx, id) },
		"restock": func(id string) (View, error) { return w.Restock(w.ctx, id, 3, "key") },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.each(func(fault string) {
				id := name + fault
				f := *w.faults
				bought := int64(0)
				if name != "create" {
					w.noFault()
					s := storetest.Sale(id, 5)
					if _, err := w.store.CreateSale(w.ctx, s); err != nil {
						t.Fatal(err)
					}
					if err := w.RunOnce(w.ctx); err != nil {
						t.Fatal(err)
					}
					w.buy(id, "bob")
					bought = 1
				}
				*w.faults = f
				_, err := change(id)
				var pending *PendingError
				if w.faults.what != "" && w.faults.what != "View" { // an error of View is not returned; the result has no Live
					if !errors.Is(err, sale.ErrUnavailable) {
						t.Errorf("the fault was hidden: %v", err)
					}
				} else if err != nil {
					t.Errorf("without a fault: %v", err)
				}
				if w.faults.what == "Sale" && !errors.As(err, &pending) {
					t.Errorf("the result of a stored change cannot be read: %v", err)
				}
				w.noFault()
				stored, _, serr := w.store.Sale(w.ctx, id)
				if errors.As(err, &pending) && (serr != nil || pending.Sale != stored) {
					t.Errorf("reported that %+v is stored; it is %+v, %v", pending.Sale, stored, serr)
				}
				if err := w.RunOnce(w.ctx); err != nil {
					t.Fatal(err)
				}
				if serr == nil {
					if v := w.view(id); v.Sale != stored || v.Left != stored.Stock-bought {
						t.Errorf("after the loop Redis holds %+v, SQL %+v", v, stored)
					}
				}
				for range 2 {
					v, err := change(id)
					if err != nil || v.Live == nil || v.Live.Sale != v.Sale || v.Live.Left != v.Stock-bought {
						t.Errorf("again: %+v, %v", v, err)
					}
				}
			})
		})
	}
}

func saleAt(id string, opens time.Time) sale.Sale {
	s := storetest.Sale(id, 5)
	s.OpensAt = opens
	return s
}

// The response to a pending change does not contain the cause. The log has it, once for each change.
func TestPendingChangeIsLogged(t *testing.T) {
	w := newWorld(t)
	w.create("old", 5)
	var log strings.Builder
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := w.SetSwitch(w.ctx, "old", sale.Paused); err != nil || log.Len() > 0 {
		t.Fatalf("with Redis: %v, log: %s", err, log.String())
	}
	w.redis.Kill()
	var pending *PendingError
	if _, err := w.SetSwitch(w.ctx, "old", sale.On); !errors.As(err, &pending) {
		t.Fatalf("without Redis: %v", err)
	}
	if got := log.String(); strings.Count(got, "sale=old err=") != 1 || !strings.Contains(got, "connection refused") {
		t.Errorf("log: %s", got)
	}
}

func TestChangeWithoutRedisIsPendingUntilReconciled(t *testing.T) {
	w := newWorld(t)
	w.create("old", 5)
	w.buy("old", "ann")
	b, _, err := queuetest.Take(w.ctx, w.queues[0], 1, "")
	if err != nil || len(b.Messages) == 0 {
		if b, _, err = queuetest.Take(w.ctx, w.queues[1], 1, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.store.Write(w.ctx, b.Messages); err != nil {
		t.Fatal(err)
	}

	w.redis.Kill()
	var pending *PendingError
	v, err := w.Create(w.ctx, storetest.Sale("new", 3))
	if !errors.As(err, &pending) || !errors.Is(err, sale.ErrUnavailable) || v.ID != "new" || v.Live != nil {
		t.Fatalf("%+v, %v", v, err)
	}
	if _, err := w.SetSwitch(w.ctx, "old", sale.Paused); !errors.As(err, &pending) || pending.Sale.Switch != sale.Paused {
		t.Fatalf("pause: %v", err)
	}
	if v, err := w.Show(w.ctx, "old"); err != nil || v.Live != nil || v.State != sale.StatePaused || v.Sold != 1 {
		t.Fatalf("show: %+v, %v", v, err)
	}
	if list, err := w.List(w.ctx); err != nil || len(list) != 2 || list[0].ID != "old" || list[0].Live != nil ||
		list[0].Sold != 1 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	if !w.Known("new") {
		t.Fatal("a sale that was just created is not known")
	}
	if err := w.RunOnce(w.ctx); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("reconcile: %v", err)
	}
	if !w.Known("new") || !w.Known("old") || w.Known("unknown") {
		t.Fatal("the sales in SQL are not known while Redis is down")
	}

	w.redis.Start() // without data
	testenv.Eventually(t, time.Minute, "the loop reaches Redis", func() bool { return w.RunOnce(w.ctx) == nil })
	w.wantTotals("new", 3, 0)
	w.wantTotals("old", 4, 1)
	if d := w.buy("old", "bob"); d.Outcome != sale.SalePaused {
		t.Fatalf("the pause was lost: %s", d.Outcome)
	}
	if _, err := w.SetSwitch(w.ctx, "old", sale.On); err != nil {
		t.Fatal(err)
	}
	if d := w.buy("old", "ann"); d.Outcome != sale.AlreadyBought {
		t.Fatalf("the buyer of a row buys again: %s", d.Outcome)
	}
	list, err := w.List(w.ctx)
	if err != nil || len(list) != 2 || list[0].Live == nil || list[1].Live == nil || list[1].Live.Left != 3 {
		t.Fatalf("list: %+v, %v", list, err)
	}
}

// With any number of sales, a run without changes queries Redis once, and a run that finds many missing sales loads
// them together.
func TestReconcileReadsVersionsInBatches(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		if _, err := w.store.CreateSale(w.ctx, storetest.Sale(fmt.Sprintf("s%d", i), 5)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what   string
		change func() error
		calls  int64
	}{
		// The rows of each sale are read in a statement of their own, and each sale is updated after the load.
		{"all are missing", func() error { return nil }, 2*shards + 2*40},
		{"nothing has changed", func() error { return nil }, shards},
		{"one has changed", func() error { _, err := w.store.Restock(w.ctx, "s7", 3, ""); return err }, shards + 1},
		{"nothing has changed", func() error { return nil }, shards},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		*w.faults = faults{}
		if err := w.RunOnce(w.ctx); err != nil || w.faults.calls != c.calls {
			t.Errorf("%s: %d calls, want %d; %v", c.what, w.faults.calls, c.calls, err)
		}
	}
	w.wantTotals("s7", 8, 0)
	w.wantTotals("s39", 5, 0)
}

// Several backends reconcile and change the same sales concurrently.
func TestReconcileConcurrentlyAgrees(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := w.store.CreateSale(w.ctx, storetest.Sale(id, 10)); err != nil {
			t.Fatal(err)
		}
	}
	plain := New(w.plain())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				if err := plain.RunOnce(w.ctx); err != nil {
					t.Error(err)
				}
				if _, err := plain.Restock(w.ctx, "b", 1, ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.wantTotals("a", 10, 0)
	w.wantTotals("b", 30, 0)
}

// Between the update and the load, a process with an older version loads the sale as it was.
func TestSlowLoadDoesNotHideAChange(t *testing.T) {
	w := newWorld(t)
	s, err := w.store.CreateSale(w.ctx, storetest.Sale("s", 5))
	if err != nil {
		t.Fatal(err)
	}
	d := New(Config{Store: w.store, Stock: lateStock{w.stock, s}})
	if v, err := d.SetSwitch(w.ctx, "s", sale.Paused); err != nil || v.State != sale.StatePaused || v.Live == nil ||
		v.Live.Version != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
}

type lateStock struct {
	*admission.Stock
	old sale.Sale
}

func (s lateStock) LoadAll(ctx context.Context, parts []admission.SalePart, orders admission.OrdersOf) error {
	if err := s.Stock.LoadAll(ctx, admission.PartsOf(s.old), orders); err != nil {
		return err
	}
	return s.Stock.LoadAll(ctx, parts, orders)
}

func TestRunRecoversAndLogsAFailureOnce(t *testing.T) {
	w := newWorld(t)
	var out testenv.Buffer
	d := New(Config{Store: w.store, Stock: w.stock, Log: slog.New(slog.NewTextHandler(&out, nil))})
	if _, err := w.store.CreateSale(w.ctx, storetest.Sale("s", 5)); err != nil {
		t.Fatal(err)
	}
	w.redis.Kill()
	stop := testenv.Run(t, func(ctx context.Context) error { return d.Run(ctx, time.Millisecond) })
	testenv.Eventually(t, time.Minute, "the failure is logged",
		func() bool { return strings.Contains(out.String(), "level=WARN") })
	w.redis.Start()
	testenv.Eventually(t, time.Minute, "the sale is loaded",
		func() bool { _, err := w.stock.View(w.ctx, "s"); return err == nil })
	testenv.Eventually(t, time.Minute, "the recovery is logged",
		func() bool { return strings.Contains(out.String(), "level=INFO") })
	stop()
	if lines := slices.Collect(strings.Lines(out.String())); len(lines) != 2 {
		t.Fatalf("logged\n%s", out.String())
	}
}

// interrupted is a store that calls once between the two reads of RunOnce.
type interrupted struct {
	Store
	between func()
}

func (s *interrupted) ArchivedSales(ctx context.Context) ([]string, error) {
	s.between()
	return s.Store.ArchivedSales(ctx)
}

func TestSaleCreatedDuringAReconcileIsKnown(t *testing.T) {
	w := newWorld(t)
	def := storetest.Sale("new", 4)
	def.Spread = 2
	w.Service.store = &interrupted{w.Service.store, sync.OnceFunc(func() {
		for range 2 { // the second call repeats the first one
			if _, err := w.Create(w.ctx, def); err != nil {
				t.Error(err)
			}
		}
	})}
	for range 2 {
		if err := w.RunOnce(w.ctx); err != nil {
			t.Fatal(err)
		}
		if open := w.SpreadSales(time.Now()); !w.Known("new") || len(open) != 1 {
			t.Errorf("known %t, spread sales %+v; want the new one", w.Known("new"), open)
		}
	}
}

// An archived sale is shown as archived immediately, before RunOnce reads the archived sales.
func TestArchivedSaleIsShownAsArchived(t *testing.T) {
	w := newWorld(t)
	w.create("old", 3)
	if _, err := w.SetSwitch(w.ctx, "old", sale.Closed); err != nil {
		t.Fatal(err)
	}
	if v, err := w.Show(w.ctx, "old"); err != nil || v.Archive != nil {
		t.Fatalf("a closed sale: %+v, %v", v.Archive, err)
	}
	if err := w.store.BeginPart(w.ctx, "old", store.ArchivePart{Number: 1, File: "old-1.ndjson.gz"}); err != nil {
		t.Fatal(err)
	}
	if v, err := w.Show(w.ctx, "old"); err != nil || v.Archive == nil || v.Archive.Parts[0].File != "old-1.ndjson.gz" {
		t.Fatalf("%+v, %v", v.Archive, err)
	}
}

// archive archives a closed sale.
func (w *world) archive(id string) {
	w.t.Helper()
	closed, err := w.SetSwitch(w.ctx, id, sale.Closed)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.BeginPart(w.ctx, id, store.ArchivePart{Number: 1, File: id + "-1.ndjson.gz"}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.stock.Remove(w.ctx, closed.Sale); err != nil {
		w.t.Fatal(err)
	}
}

// loading is a store that calls once while a sale is loaded.
type loading struct {
	Store
	during func()
}

func (s *loading) OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
	s.during()
	return s.Store.OrdersOf(ctx, of, yield)
}

// A process is suspended while it loads a sale, and the sale is closed and archived meanwhile.
func TestSaleThatIsArchivedWhileItIsLoadedDoesNotSell(t *testing.T) {
	for name, load := range map[string]func(*world) error{
		"reconcile": func(w *world) error { return w.RunOnce(w.ctx) },
		"restock":   func(w *world) error { _, err := w.Restock(w.ctx, "old", 1, ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := w.create("old", 3)
			if err := w.stock.Remove(w.ctx, v.Sale); err != nil {
				t.Fatal(err)
			}
			archived := false
			w.Service.store = &loading{w.Service.store, sync.OnceFunc(func() {
				if _, err := w.store.SetSwitch(w.ctx, "old", sale.Closed); err != nil {
					t.Error(err)
				}
				err := w.store.BeginPart(w.ctx, "old", store.ArchivePart{Number: 1, File: "old-1.ndjson.gz"})
				archived = err == nil
			})}
			if err := load(w); err != nil || !archived {
				t.Fatal(err, archived)
			}
			if v, err := w.stock.View(w.ctx, "old"); !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("Redis has the sale: %s, %v", v.State, err)
			}
		})
	}
}

// failing is a store that archives the sale that is loaded first, and cannot read the orders of another one.
type failing struct {
	Store
	archive func(id string)
	first   string
}

func (s *failing) OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
	if s.first != "" {
		return sale.ErrUnavailable
	}
	s.first = of.SaleID
	s.archive(of.SaleID)
	return s.Store.OrdersOf(ctx, of, yield)
}

// A sale that is archived while it is loaded does not sell, also if the load of another sale fails afterwards.
func TestArchivedSaleIsRemovedAfterAFailedLoad(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"one", "two"} {
		if err := w.stock.Remove(w.ctx, w.create(id, 3).Sale); err != nil {
			t.Fatal(err)
		}
	}
	loads := &failing{Store: w.Service.store, archive: func(id string) {
		if _, err := w.store.SetSwitch(w.ctx, id, sale.Closed); err != nil {
			t.Error(err)
		}
		if err := w.store.BeginPart(w.ctx, id, store.ArchivePart{Number: 1, File: id + "-1.ndjson.gz"}); err != nil {
			t.Error(err)
		}
	}}
	w.Service.store = loads
	if err := w.RunOnce(w.ctx); !errors.Is(err, sale.ErrUnavailable) || loads.first == "" {
		t.Fatalf("RunOnce returned %v", err)
	}
	if v, err := w.stock.View(w.ctx, loads.first); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("Redis has the sale: %s, %v", v.State, err)
	}
}

// A repeated Close and a Describe change an archived sale in SQL only.
func TestArchivedSaleIsNotLoaded(t *testing.T) {
	w := newWorld(t)
	w.create("old", 3)
	w.archive("old")
	if v, err := w.SetSwitch(w.ctx, "old", sale.Closed); err != nil || v.State != sale.StateClosed {
		t.Errorf("close: %s, %v", v.State, err)
	}
	to := sale.Details{Description: "sold in 2026"}
	if v, err := w.Describe(w.ctx, "old", to); err != nil || v.Details != to {
		t.Errorf("describe: %+v, %v", v.Details, err)
	}
	if _, err := w.stock.View(w.ctx, "old"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("Redis has the sale: %v", err)
	}
}
