package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
)

var callbacks atomic.Int64

// Payment returns a new callback that pays an order of a Sale in full.
func Payment(o sale.Order, reference string) store.Payment {
	id := fmt.Sprint("msg_", callbacks.Add(1))
	return store.Payment{
		CallbackID: id, Digest: "digest of " + id, OrderID: o.ID, Event: store.EventSucceeded,
		Price: sale.Price{Amount: 9900, Currency: "EUR"}, Reference: reference,
	}
}

func (e *env) pay(t *testing.T, o sale.Order, reference string) {
	t.Helper()
	e.wantSettled(t, Payment(o, reference), store.SettledPaid)
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

func pay(t *testing.T, e *env) {
	e.createHold(t, "h", 10)
	o, other := Order("h", "ann"), Order("h", "bob")
	e.write(t, o, other)

	failed := Payment(o, "")
	failed.Event, failed.Price = store.EventFailed, sale.Price{}
	e.wantSettled(t, failed, store.SettledFailed)
	e.wantStatus(t, sale.StatusCreated, o)

	for _, price := range []sale.Price{
		{Amount: 9899, Currency: "EUR"}, {Amount: 9900, Currency: "USD"}, {Amount: -9900, Currency: "EUR"},
	} {
		wrong := Payment(o, "wrong "+fmt.Sprint(price))
		wrong.Price = price
		e.wantSettled(t, wrong, store.SettledMismatch)
		e.wantStatus(t, sale.StatusCreated, o)
	}
	first := Payment(o, "ref-1")
	e.wantSettled(t, first, store.SettledPaid)
	e.wantStatus(t, sale.StatusPaid, o)
	e.wantSettled(t, Payment(o, "ref-1"), store.SettledPaid) // the same payment under another callback id
	e.wantSettled(t, Payment(o, "ref-2"), store.SettledTwice)
	if got, replayed, err := e.Pay(e.ctx, failed); err != nil || got != store.SettledFailed || !replayed {
		t.Fatalf("the first callback again: %s, %v, %v", got, replayed, err)
	}

	changed := first
	changed.Digest = "another body"
	if _, _, err := e.Pay(e.ctx, changed); !errors.Is(err, store.ErrCallbackReused) {
		t.Fatalf("another body under the same id: %v", err)
	}
	if _, _, err := e.Pay(e.ctx, Payment(sale.Order{ID: 77}, "ref")); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("order without a row: %v", err)
	}

	Elapse(t, e.url, o, other)
	if got, err := e.CancelOverdue(e.ctx, 10); err != nil || !slices.Equal(idsOf(got), idsOf([]sale.Order{other})) {
		t.Fatalf("cancelled %v, %v; want only the unpaid order", got, err)
	}
	e.wantStatus(t, sale.StatusPaid, o)
	for range 2 { // two callbacks of one payment: one refund
		e.wantSettled(t, Payment(other, "late"), store.SettledCancelled)
	}
	e.wantStatus(t, sale.StatusCancelled, other)
	e.wantRows(t, "h", 1)
	if open := e.refunds(t); len(open) != 5 || open[4].OrderID != other.ID || open[4].Reference != "late" ||
		open[4].SaleID != "h" || open[4].Settlement != store.SettledCancelled {
		t.Fatalf("%d refunds: %+v", len(open), open)
	}
}

// A payment after the end of the hold pays the order as long as it is not cancelled.
func payBeatsTheHold(t *testing.T, e *env) {
	e.createHold(t, "h", 10)
	o := Order("h", "ann")
	e.write(t, o)
	Elapse(t, e.url, o)
	e.pay(t, o, "ref")
	if got, err := e.CancelOverdue(e.ctx, 10); err != nil || len(got) != 0 {
		t.Fatalf("cancelled %v, %v", got, err)
	}
}

func settleRefund(t *testing.T, e *env) {
	e.create(t, "s", 10)
	o := Order("s", "ann")
	e.write(t, o)
	e.pay(t, o, "one")
	e.wantSettled(t, Payment(o, "two"), store.SettledTwice)
	all, err := e.Callbacks(e.ctx, store.CallbackQuery{OrderID: o.ID, SaleID: "s"})
	if err != nil || len(all) != 2 || all[0].Refund || !all[1].Refund || !all[1].SettledAt.IsZero() {
		t.Fatalf("%+v, %v", all, err)
	}
	if got, err := e.Callbacks(e.ctx, store.CallbackQuery{After: all[0].Number, Limit: 1}); err != nil || len(got) != 1 ||
		got[0].Number != all[1].Number {
		t.Fatalf("the second page: %+v, %v", got, err)
	}
	for _, note := range []string{"refunded", "again"} {
		c, err := e.SettleRefund(e.ctx, all[1].Number, "eve", note)
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
	e.wantSettled(t, Payment(o, "two"), store.SettledTwice)
	if open := e.refunds(t); len(open) != 0 {
		t.Fatalf("requested again: %+v", open)
	}
	if _, err := e.SettleRefund(e.ctx, all[0].Number, "eve", ""); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("nothing to refund: %v", err)
	}
	if _, err := e.SettleRefund(e.ctx, 1<<40, "eve", ""); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("no such callback: %v", err)
	}
}

// Payments, expired holds and cancellations run concurrently: each order ends as paid or cancelled, in agreement with
// the results of the calls and with the number of sold units.
func payRace(t *testing.T, e *env) {
	const n = 60
	e.createHold(t, "h", n)
	orders := Orders("h", n)
	e.write(t, orders...)
	Elapse(t, e.url, orders...)
	settled := make([][2]store.Settlement, n)
	cancelled := make([]atomic.Int64, n)
	var unsure atomic.Bool // a cancellation timed out, so its result is unknown
	index := map[sale.OrderID]int{}
	for i, o := range orders {
		index[o.ID] = i
	}
	var wg sync.WaitGroup
	for i, o := range orders {
		p := Payment(o, "ref")
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
				_, changed, err := e.CancelOrder(e.ctx, o.ID, "eve", "")
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
}
