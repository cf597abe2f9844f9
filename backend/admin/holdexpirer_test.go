package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// returner returns a HoldExpirer that uses the world's faulty stores and returns leftovers of any age.
func (w *world) returner() *HoldExpirer {
	r := NewHoldExpirer(
		Config{
			Store: faultyStore{w.store, w.faults},
			Stock: faultyStock{w.stock, w.faults},
			Log:   slog.New(slog.DiscardHandler),
		},
	)
	r.age = 0
	return r
}

// sellHeld creates a sale with a hold and one order row for each of these buyers.
func (w *world) sellHeld(id string, stock int64, buyers ...string) []sale.Order {
	w.t.Helper()
	if _, err := w.Create(w.ctx, storetest.WithHold(id, stock, time.Hour)); err != nil {
		w.t.Fatal(err)
	}
	var rows []sale.Order
	for _, buyer := range buyers {
		d := w.buy(id, buyer)
		if d.Outcome != sale.Accepted {
			w.t.Fatalf("%s: %s", buyer, d.Outcome)
		}
		rows = append(rows, sale.Order{ID: d.OrderID, SaleID: id, Buyer: buyer})
	}
	w.drain()
	for i := range rows {
		o, err := w.store.Order(w.ctx, rows[i].ID)
		if err != nil {
			w.t.Fatal(err)
		}
		rows[i] = o
	}
	return rows
}

func (w *world) elapse(orders ...sale.Order) { storetest.Elapse(w.t, w.url, orders...) }

func (w *world) wantBalanced(saleID string) audit.Report {
	w.t.Helper()
	r, err := audit.New(w.stock, w.store).Audit(w.ctx, saleID)
	if err != nil || !r.Balanced {
		w.t.Fatalf("audit %+v, %v", r, err)
	}
	return r
}

// A process may crash at any call between the end of a hold and the return of the unit. The audit balances at that
// instant, and the next run of any process returns the unit once.
func TestUnpaidOrderReturnsItsUnitOnceAfterAnyCrash(t *testing.T) {
	w := newWorld(t)
	w.each(func(fault string) {
		f := *w.faults
		w.noFault()
		rows := w.sellHeld(fault, 3, "ann", "bob", "cid")
		w.elapse(rows[0], rows[1])
		*w.faults = f
		r := w.returner()
		r.turns = 1 // skips confirmReturns, which makes a call for every sale
		if err := r.RunOnce(w.ctx); w.faults.what != "" != errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("the fault was hidden: %v", err)
		}
		w.noFault()
		w.wantBalanced(fault)
		for range 2 { // another process, without a fault
			if err := w.returner().RunOnce(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		w.wantTotals(fault, 2, 1)
		if report := w.wantBalanced(fault); report.Ordered != 1 || report.Returning != 0 {
			t.Errorf("audit %+v", report)
		}
		if given, err := w.stock.PendingReturns(w.ctx, spread.Part{SaleID: fault}); err != nil || len(given) != 0 {
			t.Errorf("Redis still has the returns %v, %v", given, err)
		}
		for buyer, want := range map[string]sale.Outcome{
			"ann": sale.Accepted, "bob": sale.Accepted, "cid": sale.AlreadyBought,
		} {
			if d := w.buy(fault, buyer); d.Outcome != want {
				t.Errorf("%s got %s, want %s", buyer, d.Outcome, want)
			}
		}
		if d := w.buy(fault, "dan"); d.Outcome != sale.SoldOut {
			t.Errorf("a fourth unit: %s", d.Outcome)
		}
		w.drain()
		w.wantTotals(fault, 0, 3)
	})
}

func TestCancelOrderReturnsTheUnitOnceAfterAnyCrash(t *testing.T) {
	w := newWorld(t)
	w.each(func(fault string) {
		f := *w.faults
		w.noFault()
		rows := w.sellHeld(fault, 2, "ann", "bob")
		*w.faults = f
		_, err := w.CancelOrder(w.ctx, rows[0].ID)
		if err != nil && !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		w.noFault()
		w.wantBalanced(fault)
		v, err := w.CancelOrder(w.ctx, rows[0].ID)
		if err != nil || v.Status != sale.StatusCancelled || v.CancelledBy != "ann" {
			t.Fatalf("%+v, %v", v, err)
		}
		if err := w.returner().RunOnce(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.wantTotals(fault, 1, 1)
		if report := w.wantBalanced(fault); report.Returning != 0 {
			t.Errorf("audit %+v", report)
		}
		if d := w.buy(fault, "ann"); d.Outcome != sale.Accepted {
			t.Errorf("the buyer got %s", d.Outcome)
		}
		w.drain()
	})
}

func TestCancelOrderReturnsTheUnitImmediately(t *testing.T) {
	w := newWorld(t)
	rows := w.sellHeld("s", 2, "ann", "bob")
	v, err := w.CancelOrder(store.WithReason(w.ctx, "wrong size"), rows[0].ID)
	if err != nil || v.Returning || v.Note != "wrong size" {
		t.Fatalf("%+v, %v", v, err)
	}
	w.wantTotals("s", 1, 1)
	if _, _, err := w.store.Pay(w.ctx, storetest.Payment(rows[1], "ref")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CancelOrder(w.ctx, rows[1].ID); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("a paid order: %v", err)
	}
	shown, err := w.Order(w.ctx, rows[1].ID)
	if err != nil || shown.Status != sale.StatusPaid || shown.Reference != "ref" || len(shown.Callbacks) != 1 {
		t.Fatalf("%+v, %v", shown, err)
	}
	if _, err := w.Order(w.ctx, 77); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("no row: %v", err)
	}
	if _, err := w.CancelOrder(w.ctx, 77); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("no row: %v", err)
	}
}

// While Redis is down, orders are still cancelled and their units count as ordered. The units are returned when Redis
// is available.
func TestUnpaidOrdersAreCancelledWhileRedisIsDown(t *testing.T) {
	w := newWorld(t)
	rows := w.sellHeld("s", 2, "ann", "bob")
	w.elapse(rows...)
	w.redis.Pause()
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	r := w.returner()
	if err := r.RunOnce(ctx); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	if o, err := w.store.Order(w.ctx, rows[0].ID); err != nil || o.Status != sale.StatusCancelled {
		t.Fatalf("%+v, %v", o, err)
	}
	if n := testutil.ToFloat64(r.counters.returning); n != 2 {
		t.Errorf("the gauge reports %v units to return", n)
	}
	w.redis.Resume()
	if report := w.wantBalanced("s"); report.Ordered != 2 || report.Returning != 2 {
		t.Fatalf("audit %+v", report)
	}
	if err := r.RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantTotals("s", 2, 0)
	if n := testutil.ToFloat64(r.counters.returning); n != 0 || testutil.ToFloat64(r.counters.returned) != 2 {
		t.Errorf("the gauge reports %v units to return, the counter %v returned units", n,
			testutil.ToFloat64(r.counters.returned))
	}
}

// Without unpaid orders only the confirmation of returns uses Redis. It is due until it has succeeded, so that Run does
// not log a recovery while the data in Redis is not verified.
func TestExpirerFailsUntilRedisResponds(t *testing.T) {
	w := newWorld(t)
	stock := &failingStock{Stock: w.stock, err: errFault}
	r := NewHoldExpirer(Config{Store: w.store, Stock: stock, Log: slog.New(slog.DiscardHandler)})
	for range 3 {
		if err := r.RunOnce(w.ctx); !errors.Is(err, errFault) {
			t.Errorf("%v, want %v", err, errFault)
		}
	}
	for _, stock.err = range []error{nil, errFault} { // the second call confirms nothing
		if err := r.RunOnce(w.ctx); err != nil {
			t.Error(err)
		}
	}
}

// failingStock is a Stock that cannot list its sales while err is not nil.
type failingStock struct {
	Stock
	err error
}

func (s *failingStock) List(ctx context.Context) ([]admission.View, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.Stock.List(ctx)
}

// Redis loses all data while units are being returned: the load counts them as left, and they are not returned a second
// time.
func TestRedisLosesDataDuringReturns(t *testing.T) {
	w := newWorld(t)
	rows := w.sellHeld("s", 5, "ann", "bob", "cid", "dan")
	if _, _, err := w.store.CancelOrder(w.ctx, rows[0].ID); err != nil { // the process crashes here
		t.Fatal(err)
	}
	if _, err := w.CancelOrder(w.ctx, rows[1].ID); err != nil { // cancelled and returned
		t.Fatal(err)
	}
	if err := w.redis.Client().FlushAll(w.ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.returner().RunOnce(w.ctx); !errors.Is(err, admission.ErrNotLoaded) {
		t.Fatalf("%v", err)
	}
	if err := w.RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	if report := w.wantBalanced("s"); report.Left != 3 || report.Ordered != 2 {
		t.Fatalf("audit %+v", report)
	}
	if err := w.returner().RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantTotals("s", 3, 2)
	w.wantBalanced("s")
}

// An order that is both a dead letter and a cancelled row has one unit.
func TestDeadLetterOfACancelledRowReturnsNoUnit(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	if err := w.store.Write(w.ctx, []sale.Order{dead}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CancelOrder(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	w.wantBalanced("s")
	got, err := w.dead.Cancel(w.ctx, dead.ID)
	if err != nil || got.UnitReturned || got.Order.Status != sale.StatusCancelled {
		t.Fatalf("%+v, %v", got, err)
	}
	w.wantTotals("s", 5, 0)
	w.wantBalanced("s")
}

// Each run is bounded: a sale that Redis does not hold does not delay the units of other sales.
func TestUnreachableSaleDelaysNoOther(t *testing.T) {
	w := newWorld(t)
	lost := w.sellHeld("lost", 3, "ann", "bob")
	kept := w.sellHeld("kept", 3, "ann", "bob")
	w.elapse(slices.Concat(lost, kept)...)
	w.lose("lost")
	if err := w.returner().RunOnce(w.ctx); !errors.Is(err, admission.ErrNotLoaded) {
		t.Fatalf("%v", err)
	}
	w.wantTotals("kept", 3, 0)
	if err := w.RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.returner().RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantTotals("lost", 3, 0)
	w.wantBalanced("lost")
}

// More orders than fit into one batch, cancelled and returned by several processes concurrently.
func TestSeveralExpirersReturnEachUnitOnce(t *testing.T) {
	w := newWorld(t)
	const n = 2*returnBatch + 10
	buyers := make([]string, n)
	for i := range buyers {
		buyers[i] = fmt.Sprint("b", i)
	}
	rows := w.sellHeld("s", n, buyers...)
	w.elapse(rows...)
	done := make(chan error, 3)
	for range 3 {
		r := NewHoldExpirer(Config{Store: w.store, Stock: w.stock, Log: slog.New(slog.DiscardHandler)})
		r.age = 0
		go func() {
			err := r.RunOnce(w.ctx)
			// SQLite has one writer, so on a slow machine a run can time out. The next one retries.
			for errors.Is(err, sale.ErrUnavailable) {
				err = r.RunOnce(w.ctx)
			}
			done <- err
		}()
	}
	for finished := 0; finished < 3; {
		w.wantBalanced("s") // at every instant
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			finished++
		default:
		}
	}
	w.wantTotals("s", n, 0)
	if report := w.wantBalanced("s"); report.Left != n {
		t.Fatalf("audit %+v", report)
	}
	rest, err := w.store.OrderRows(w.ctx, store.OrderQuery{SaleID: "s", Status: sale.StatusCancelled, Limit: 1})
	if err != nil || len(rest) != 1 || rest[0].CancelledBy != "hold" || rest[0].Returning {
		t.Fatalf("%+v, %v", rest, err)
	}
}

// A payment and an admin's cancel run concurrently: one of them succeeds and decides about unit and money, and the
// other gets an error.
func TestOneOfConcurrentCancelAndPaymentSucceeds(t *testing.T) {
	const rounds = 30
	w := newWorld(t)
	plain := New(w.plain())
	var names []string
	for i := range rounds {
		names = append(names, fmt.Sprint("buyer ", i))
	}
	rows := w.sellHeld("s", rounds, names...)
	left, sold, refunds := int64(0), int64(rounds), 0
	for i, o := range rows {
		var wg sync.WaitGroup
		var settled store.Settlement
		var cancelErr error
		pay := func() {
			var err error
			if settled, _, err = w.store.Pay(w.ctx, storetest.Payment(o, "ref")); err != nil {
				t.Errorf("pay: %v", err)
			}
		}
		cancel := func() { _, cancelErr = plain.CancelOrder(w.ctx, o.ID) }
		first, second := pay, cancel // the first one is likely to succeed
		if i%2 == 1 {
			first, second = second, first
		}
		wg.Go(second)
		first()
		wg.Wait()
		got, err := w.store.Order(w.ctx, o.ID)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case got.Status == sale.StatusPaid && settled == store.SettledPaid && errors.Is(cancelErr, sale.ErrConflict):
		case got.Status == sale.StatusCancelled && settled == store.SettledCancelled && cancelErr == nil:
			left, sold, refunds = left+1, sold-1, refunds+1
		default:
			t.Fatalf("order %d is %s; the payment got %s, the admin %v", i, got.Status, settled, cancelErr)
		}
		w.wantTotals("s", left, sold)
	}
	w.wantBalanced("s")
	open, err := w.store.Callbacks(w.ctx, store.CallbackQuery{OpenRefunds: true, Limit: rounds})
	if err != nil || len(open) != refunds {
		t.Errorf("%d refunds for %d late payments, %v", len(open), refunds, err)
	}
	if refunds == 0 || refunds == rounds {
		t.Errorf("%d of %d cancels succeeded, want some of both", refunds, rounds)
	}
}
