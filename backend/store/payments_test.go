package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func (e *env) pay(t *testing.T, o sale.Order, reference string) {
	t.Helper()
	e.wantSettled(t, storetest.Payment(o, reference), store.SettledPaid)
}

// wantSettled sends a callback twice and checks that the second call returns the same settlement.
func (e *env) wantSettled(t *testing.T, p store.Payment, want store.Settlement) {
	t.Helper()
	for i := range 2 {
		if got, replayed, err := e.Pay(e.ctx, p); err != nil || got != want || replayed != (i == 1) {
			t.Fatalf("callback %s, call %d: %s, replayed %v, %v; want %s", p.CallbackID, i+1, got, replayed, err, want)
		}
	}
}

func (e *env) refunds(t *testing.T) []store.Callback {
	t.Helper()
	open, err := e.Callbacks(e.ctx, store.CallbackQuery{OpenRefunds: true})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

func TestPayOnceAndRecordRefunds(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createHold(t, "h", 10)
		o, other := storetest.Order("h", "ann"), storetest.Order("h", "bob")
		e.write(t, o, other)

		failed := storetest.Payment(o, "")
		failed.Event, failed.Price = store.EventFailed, sale.Price{}
		e.wantSettled(t, failed, store.SettledFailed)
		e.wantStatus(t, sale.StatusCreated, o)

		for _, price := range []sale.Price{
			{Amount: 9899, Currency: "EUR"}, {Amount: 9900, Currency: "USD"}, {Amount: -9900, Currency: "EUR"},
		} {
			wrong := storetest.Payment(o, "wrong "+fmt.Sprint(price))
			wrong.Price = price
			e.wantSettled(t, wrong, store.SettledMismatch)
			e.wantStatus(t, sale.StatusCreated, o)
		}
		first := storetest.Payment(o, "ref-1")
		e.wantSettled(t, first, store.SettledPaid)
		e.wantStatus(t, sale.StatusPaid, o)
		e.wantSettled(t, storetest.Payment(o, "ref-1"), store.SettledPaid) // the same payment under another callback id
		e.wantSettled(t, storetest.Payment(o, "ref-2"), store.SettledTwice)
		if got, replayed, err := e.Pay(e.ctx, failed); err != nil || got != store.SettledFailed || !replayed {
			t.Fatalf("the first callback again: %s, %v, %v", got, replayed, err)
		}

		changed := first
		changed.Digest = "another body"
		if _, _, err := e.Pay(e.ctx, changed); !errors.Is(err, store.ErrCallbackReused) {
			t.Fatalf("another body under the same id: %v", err)
		}
		if _, _, err := e.Pay(e.ctx, storetest.Payment(sale.Order{ID: 77}, "ref")); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("order without a row: %v", err)
		}

		storetest.Elapse(t, e.url, o, other)
		if got, err := e.CancelOverdue(e.ctx, 10); err != nil || !slices.Equal(idsOf(got), idsOf([]sale.Order{other})) {
			t.Fatalf("cancelled %v, %v; want only the unpaid order", got, err)
		}
		e.wantStatus(t, sale.StatusPaid, o)
		for range 2 { // two callbacks of one payment: one refund
			e.wantSettled(t, storetest.Payment(other, "late"), store.SettledCancelled)
		}
		e.wantStatus(t, sale.StatusCancelled, other)
		e.wantRows(t, "h", 1)
		if open := e.refunds(t); len(open) != 5 || open[4].OrderID != other.ID || open[4].Reference != "late" ||
			open[4].SaleID != "h" || open[4].Settlement != store.SettledCancelled {
			t.Fatalf("%d refunds: %+v", len(open), open)
		}
	})
}

// A payment after the end of the hold pays the order as long as it is not cancelled.
func TestPayAfterHoldBeforeCancel(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createHold(t, "h", 10)
		o := storetest.Order("h", "ann")
		e.write(t, o)
		storetest.Elapse(t, e.url, o)
		e.pay(t, o, "ref")
		if got, err := e.CancelOverdue(e.ctx, 10); err != nil || len(got) != 0 {
			t.Fatalf("cancelled %v, %v", got, err)
		}
	})
}

func TestSettleRefundOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		o := storetest.Order("s", "ann")
		e.write(t, o)
		e.pay(t, o, "one")
		e.wantSettled(t, storetest.Payment(o, "two"), store.SettledTwice)
		all, err := e.Callbacks(e.ctx, store.CallbackQuery{OrderID: o.ID, SaleID: "s"})
		if err != nil || len(all) != 2 || all[0].Refund || !all[1].Refund || !all[1].SettledAt.IsZero() {
			t.Fatalf("%+v, %v", all, err)
		}
		if got, err := e.Callbacks(e.ctx, store.CallbackQuery{After: all[0].Number, Limit: 1}); err != nil || len(got) != 1 ||
			got[0].Number != all[1].Number {
			t.Fatalf("the second page: %+v, %v", got, err)
		}
		for _, note := range []string{"refunded", "again"} {
			c, err := e.SettleRefund(acting(e.ctx, "eve", ""), all[1].Number, note)
			if err != nil || c.SettledBy != "eve" || c.Note != "refunded" || c.SettledAt.IsZero() || c.Number != all[1].Number {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		if open := e.refunds(t); len(open) != 0 {
			t.Fatalf("still open: %+v", open)
		}
		if log, err := e.Log(e.ctx, store.LogQuery{Limit: 2}); err != nil || log[0].Action != "payment.settle" ||
			log[0].Actor != "eve" || log[0].Target != o.ID.String() || log[1].Action == "payment.settle" {
			t.Fatalf("log %+v, %v", log, err)
		}
		// another callback of the payment does not request a second refund
		e.wantSettled(t, storetest.Payment(o, "two"), store.SettledTwice)
		if open := e.refunds(t); len(open) != 0 {
			t.Fatalf("requested again: %+v", open)
		}
		if _, err := e.SettleRefund(e.ctx, all[0].Number, ""); !errors.Is(err, sale.ErrConflict) {
			t.Fatalf("nothing to refund: %v", err)
		}
		if _, err := e.SettleRefund(e.ctx, 1<<40, ""); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("no such callback: %v", err)
		}
	})
}

// Two callbacks of one payment have different amounts. Whichever is first, no refund is requested for the payment that
// paid the order.
func TestPaymentThatPaidIsNotRefunded(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		for _, mismatchFirst := range []bool{false, true} {
			o := storetest.Order("s", fmt.Sprint(mismatchFirst))
			e.write(t, o)
			wrong := storetest.Payment(o, "ref")
			wrong.Price.Amount--
			if mismatchFirst {
				e.wantSettled(t, wrong, store.SettledMismatch)
				if open := e.refunds(t); len(open) != 1 {
					t.Fatalf("the wrong amount alone: refunds %+v", open)
				}
			}
			e.pay(t, o, "ref")
			if !mismatchFirst {
				e.wantSettled(t, wrong, store.SettledMismatch)
			}
			if open := e.refunds(t); len(open) != 0 {
				t.Errorf("mismatch first %v: refunds of the payment that paid: %+v", mismatchFirst, open)
			}
			other := wrong
			other.CallbackID, other.Reference = wrong.CallbackID+"-other", "other"
			e.wantSettled(t, other, store.SettledMismatch)
			open := e.refunds(t)
			if len(open) != 1 || open[0].Reference != "other" {
				t.Fatalf("another payment with a wrong amount: refunds %+v", open)
			}
			_, err := e.SettleRefund(e.ctx, open[0].Number, "")
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Of several concurrent calls with the same callback, one settles it. The others wait for it and return the same
// settlement, so none needs a retry.
func TestPayOnceConcurrently(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const orders, calls = 30, 6
		e.createHold(t, "h", orders)
		all := storetest.Orders("h", orders)
		e.write(t, all...)
		var wg sync.WaitGroup
		first := make([]atomic.Int64, orders)
		for i, o := range all {
			p := storetest.Payment(o, "ref")
			for range calls {
				wg.Go(func() {
					settled, replayed, err := e.Pay(e.ctx, p)
					if err != nil || settled != store.SettledPaid {
						t.Errorf("order %d: %s, %v", i, settled, err)
					}
					if !replayed {
						first[i].Add(1)
					}
				})
			}
		}
		wg.Wait()
		for i := range first {
			if n := first[i].Load(); n != 1 {
				t.Errorf("order %d was paid by %d calls, want 1", i, n)
			}
		}
		if page, err := e.Callbacks(e.ctx, store.CallbackQuery{}); err != nil || len(page) != orders {
			t.Errorf("%d callbacks, %v; want %d", len(page), err, orders)
		}
	})
}

// Of concurrent callbacks with one id for different orders, one settles its order. The others change nothing, and a
// retry returns ErrCallbackReused, whether or not their order is a row.
func TestPayWithOneIDForDifferentOrdersSettlesOne(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createHold(t, "h", 4)
		orders := storetest.Orders("h", 4)
		e.write(t, orders...)
		var wg sync.WaitGroup
		var paid atomic.Int64
		for i, o := range orders {
			p := storetest.Payment(o, "ref")
			p.CallbackID = "msg_same"
			wg.Go(func() {
				err := sale.ErrUnavailable
				for errors.Is(err, sale.ErrUnavailable) { // a provider retries
					_, _, err = e.Pay(e.ctx, p)
				}
				switch {
				case err == nil:
					paid.Add(1)
				case !errors.Is(err, store.ErrCallbackReused):
					t.Errorf("order %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		rows, err := e.OrderRows(e.ctx, store.OrderQuery{SaleID: "h", Status: sale.StatusPaid})
		if err != nil || paid.Load() != 1 || len(rows) != 1 {
			t.Errorf("%d calls paid %d orders, %v; want 1", paid.Load(), len(rows), err)
		}
		absent := storetest.Payment(storetest.Order("h", "eve"), "ref")
		absent.CallbackID = "msg_same"
		if _, _, err := e.Pay(e.ctx, absent); !errors.Is(err, store.ErrCallbackReused) {
			t.Errorf("for an order that is not a row: %v", err)
		}
	})
}

// Payments, expired holds and cancellations run concurrently: each order ends as paid or cancelled, in agreement with
// the results of the calls and with the number of sold units.
func TestPayAgainstCancelHasOneWinner(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const n = 60
		e.createHold(t, "h", n)
		orders := storetest.Orders("h", n)
		e.write(t, orders...)
		storetest.Elapse(t, e.url, orders...)
		settled := make([][2]store.Settlement, n)
		cancelled := make([]atomic.Int64, n)
		var unsure atomic.Bool // a cancellation timed out, so its result is unknown
		index := map[sale.OrderID]int{}
		for i, o := range orders {
			index[o.ID] = i
		}
		var wg sync.WaitGroup
		for i, o := range orders {
			p := storetest.Payment(o, "ref")
			for k := range 2 { // the same callback twice, concurrently
				wg.Go(func() {
					err := sale.ErrUnavailable
					for errors.Is(err, sale.ErrUnavailable) { // a provider retries
						settled[i][k], _, err = e.Pay(e.ctx, p)
					}
					if err != nil {
						t.Errorf("pay: %v", err)
					}
				})
			}
			if i%3 == 0 {
				wg.Go(func() {
					_, changed, err := e.CancelOrder(e.ctx, o.ID)
					switch {
					case errors.Is(err, sale.ErrUnavailable):
						unsure.Store(true)
					case err != nil && !errors.Is(err, sale.ErrConflict):
						t.Errorf("cancel: %v", err)
					}
					if changed && err == nil {
						cancelled[i].Add(1)
					}
				})
			}
			if i%4 == 1 {
				wg.Go(func() {
					expired, err := e.CancelOverdue(e.ctx, 3)
					switch {
					case errors.Is(err, sale.ErrUnavailable):
						unsure.Store(true)
					case err != nil:
						t.Errorf("overdue: %v", err)
					}
					for _, o := range expired {
						cancelled[index[o.ID]].Add(1)
					}
				})
			}
		}
		wg.Wait()
		paid := int64(0)
		for i, o := range orders {
			got, err := e.Order(e.ctx, o.ID)
			if err != nil {
				t.Fatal(err)
			}
			want, times := store.SettledCancelled, int64(1)
			if got.Status == sale.StatusPaid {
				want, times = store.SettledPaid, 0
				paid++
			}
			known := cancelled[i].Load()
			if settled[i] != [2]store.Settlement{want, want} || known != times && (known != 0 || !unsure.Load()) {
				t.Errorf("order %d is %s; its payments returned %v, and %d cancellations succeeded", i, got.Status, settled[i],
					known)
			}
		}
		e.wantRows(t, "h", paid)
		if open := e.refunds(t); int64(len(open)) != n-paid {
			t.Errorf("%d refunds for %d cancelled orders", len(open), n-paid)
		}
	})
}
