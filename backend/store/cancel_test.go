package store_test

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// createHold creates a sale with a hold of 15 minutes.
func (e *env) createHold(t *testing.T, id string, stock int64) {
	t.Helper()
	got, err := e.CreateSale(e.ctx, storetest.WithHold(id, stock, 15*time.Minute))
	if err != nil || got.Hold != 15*time.Minute {
		t.Fatalf("%+v, %v", got, err)
	}
}

func (e *env) wantStatus(t *testing.T, want sale.Status, orders ...sale.Order) {
	t.Helper()
	for _, o := range orders {
		if got, err := e.Order(e.ctx, o.ID); err != nil || got.Status != want {
			t.Fatalf("order %s of %s is %s, %v; want %s", o.ID, o.Buyer, got.Status, err, want)
		}
	}
}

func idsOf(orders []sale.Order) []sale.OrderID {
	ids := make([]sale.OrderID, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
	}
	slices.Sort(ids)
	return ids
}

func TestDueAtFollowsTheSalesHold(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createHold(t, "h", 10)
		e.create(t, "s", 10)
		held, free := storetest.Order("h", "ann"), storetest.Order("s", "ann")
		before := time.Now()
		e.write(t, held, free)
		got, err := e.Order(e.ctx, held.ID)
		if err != nil || got.DueAt.Before(before.Add(15*time.Minute-time.Minute)) ||
			got.DueAt.After(time.Now().Add(15*time.Minute+time.Minute)) {
			t.Errorf("due at %s, %v; want 15 minutes after %s", got.DueAt, err, before)
		}
		if got, err := e.Order(e.ctx, free.ID); err != nil || !got.DueAt.IsZero() {
			t.Errorf("without a hold: due at %s, %v", got.DueAt, err)
		}
		e.write(t, held, storetest.Order("h", "bob")) // a batch with a stored order uses another statement
		again, err := e.Order(e.ctx, held.ID)
		if err != nil || !again.DueAt.Equal(got.DueAt) {
			t.Errorf("after a second write it is due at %s, %v; before: %s", again.DueAt, err, got.DueAt)
		}
		found, sold, err := e.Sale(e.ctx, "h")
		if err != nil || found.Hold != 15*time.Minute || sold != 2 {
			t.Errorf("%+v, %d sold, %v", found, sold, err)
		}
	})
}

func TestCancelOverdueCancelsUnpaidOrders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createHold(t, "h", 10)
		e.createHold(t, "i", 10)
		e.create(t, "s", 10)
		orders, others, free := storetest.Orders("h", 5), storetest.Orders("i", 2), storetest.Orders("s", 2)
		e.write(t, slices.Concat(orders, others, free)...)
		if got, err := e.CancelOverdue(e.ctx, 100); err != nil || len(got) != 0 {
			t.Fatalf("before the hold ends: %v, %v", got, err)
		}
		due := slices.Concat(orders[:3], others[:1])
		storetest.Elapse(t, e.url, slices.Concat(due, free)...)
		if _, _, err := e.CancelOrder(e.ctx, orders[0].ID); err != nil {
			t.Fatal(err)
		}
		var got []sale.Order
		for range 2 { // at most two each: two, then the third
			part, err := e.CancelOverdue(e.ctx, 2)
			if err != nil || len(part) > 2 {
				t.Fatalf("%v, %v", part, err)
			}
			got = append(got, part...)
		}
		if !slices.Equal(idsOf(got), idsOf(due[1:])) {
			t.Fatalf("cancelled %v, want %v", idsOf(got), idsOf(due[1:]))
		}
		for _, o := range got {
			if o.Status != sale.StatusCancelled || o.Buyer == "" {
				t.Errorf("returned %+v", o)
			}
		}
		if got, err := e.CancelOverdue(e.ctx, 100); err != nil || len(got) != 0 {
			t.Fatalf("second call: %v, %v", got, err)
		}
		e.wantStatus(t, sale.StatusCancelled, due...)
		e.wantStatus(t, sale.StatusCreated, orders[3], orders[4], others[1], free[0])
		for i, o := range due {
			if row, err := e.Order(e.ctx, o.ID); err != nil || row.Expired != (i > 0) {
				t.Errorf("order %d (an admin cancelled order 0): %+v, %v", i, row, err)
			}
		}
		e.wantRows(t, "h", 2)
		e.wantRows(t, "i", 1)
		e.wantRows(t, "s", 2)

		next := storetest.Order("h", orders[1].Buyer) // the slot and the unit are free again
		e.write(t, next)
		e.wantRows(t, "h", 3)
		e.write(t, orders[1]) // a late worker has no effect
		e.wantStatus(t, sale.StatusCancelled, orders[1])
		e.wantRows(t, "h", 3)
	})
}

// The number of sold units of one sale is wrong, for example after a change by hand.
func TestCancelOverdueWithTooFewSold(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createHold(t, "wrong", 5)
		e.createHold(t, "s", 5)
		orders := []sale.Order{storetest.Order("wrong", "ann"), storetest.Order("wrong", "bob"), storetest.Order("s", "ann")}
		e.write(t, orders...)
		storetest.Exec(t, e.url, "UPDATE sales SET sold = 1 WHERE id = 'wrong'")
		storetest.Elapse(t, e.url, orders...)
		if got, err := e.CancelOverdue(e.ctx, 10); err != nil || !slices.Equal(idsOf(got), idsOf(orders)) {
			t.Errorf("cancelled %v, %v; want %v", idsOf(got), err, idsOf(orders))
		}
		e.wantStatus(t, sale.StatusCancelled, orders...)
		for _, id := range []string{"wrong", "s"} {
			if _, sold, err := e.Sale(e.ctx, id); err != nil || sold != 0 {
				t.Errorf("sale %s: %d sold, %v", id, sold, err)
			}
		}
	})
}

func TestCancelOverdueConcurrentlyCancelsEachOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const n = 120
		e.createHold(t, "h", n)
		e.createHold(t, "i", n)
		orders := slices.Concat(storetest.Orders("h", n/2), storetest.Orders("i", n/2))
		e.write(t, orders...)
		storetest.Elapse(t, e.url, orders...)
		var mu sync.Mutex
		var got []sale.Order
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for empty := 0; empty < 3; {
					part, err := e.CancelOverdue(e.ctx, 3+w)
					if err != nil {
						t.Errorf("worker %d: %v", w, err)
						return
					}
					if len(part) == 0 {
						empty++ // another worker may hold the remaining rows and fail
					}
					mu.Lock()
					got = append(got, part...)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if !slices.Equal(idsOf(got), idsOf(orders)) {
			t.Fatalf("%d cancelled, want each of the %d orders once", len(got), n)
		}
		e.wantRows(t, "h", 0)
		e.wantRows(t, "i", 0)
	})
}

func TestCancelOrderIsIdempotent(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		o, other := storetest.Order("s", "ann"), storetest.Order("s", "bob")
		e.write(t, o, other)
		for i := range 3 {
			got, changed, err := e.CancelOrder(acting(e.ctx, "eve", "wrong size"), o.ID)
			if err != nil || changed != (i == 0) || got.ID != o.ID || got.Status != sale.StatusCancelled || got.SaleID != "s" {
				t.Fatalf("call %d: %+v, changed %v, %v", i+1, got, changed, err)
			}
		}
		e.wantRows(t, "s", 1)
		rows, err := e.OrderRows(e.ctx, store.OrderQuery{ID: o.ID})
		if err != nil || len(rows) != 1 || rows[0].CancelledBy != "eve" || rows[0].Note != "wrong size" ||
			!rows[0].Returning || rows[0].UpdatedAt.IsZero() {
			t.Fatalf("%+v, %v", rows, err)
		}
		log, err := e.Log(e.ctx, store.LogQuery{Limit: 2})
		if err != nil || log[0].Actor != "eve" || log[0].Action != "order.cancel" || log[0].Target != o.ID.String() ||
			log[0].Detail != "sale s: wrong size" || log[1].Action == "order.cancel" {
			t.Fatalf("log %+v, %v", log, err)
		}
		if _, _, err := e.CancelOrder(e.ctx, 77); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("no row: %v", err)
		}
		e.pay(t, other, "p1")
		if _, _, err := e.CancelOrder(e.ctx, other.ID); !errors.Is(err, sale.ErrConflict) {
			t.Fatalf("a paid order: %v", err)
		}
		e.wantStatus(t, sale.StatusPaid, other)
		e.wantRows(t, "s", 1)
	})
}

// An order of an archived sale cannot be cancelled, because its unit cannot return to Redis. The error must not report
// the order as paid.
func TestOrderOfAnArchivedSaleIsNotCancelled(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "old", 5)
		o := storetest.Order("old", "ann")
		e.write(t, o)
		e.beginArchive(t, "old")
		_, _, err := e.CancelOrder(e.ctx, o.ID)
		const want = "The sale old of the order is archived, so the order cannot be cancelled any more."
		if refused, ok := errors.AsType[*store.RefusedError](err); !ok || refused.Detail != want {
			t.Errorf("%v, want %q", err, want)
		}
		e.wantStatus(t, sale.StatusCreated, o)
	})
}

func TestReturningUntilMarked(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 100)
		orders := storetest.Orders("s", 7)
		e.write(t, orders...)
		dead := storetest.Order("s", "dead")
		// its dead letter returns the unit
		e.cancelDead(t, dead, false)
		e.cancel(t, orders[:5]...)
		read := func(after sale.OrderID, limit int) []sale.OrderID {
			t.Helper()
			got, err := e.Returning(e.ctx, after, 0, limit)
			if err != nil {
				t.Fatal(err)
			}
			return idsOf(got)
		}
		if got := read(0, 100); !slices.Equal(got, idsOf(orders[:5])) {
			t.Fatalf("returning %v, want %v", got, idsOf(orders[:5]))
		}
		if got := read(orders[1].ID, 2); !slices.Equal(got, idsOf(orders[2:4])) {
			t.Fatalf("the second page is %v, want %v", got, idsOf(orders[2:4]))
		}
		if got, err := e.Returning(e.ctx, 0, time.Hour, 100); err != nil || len(got) != 0 {
			t.Fatalf("cancelled an hour ago: %v, %v", got, err)
		}
		if err := e.MarkReturned(e.ctx, nil); err != nil {
			t.Fatal(err)
		}
		returns := []store.Return{
			{ID: orders[0].ID, Number: 1},
			{ID: orders[2].ID, Number: 1<<53 + 1},
			{ID: orders[6].ID, Number: 9},
			{ID: dead.ID, Number: 9},
			{ID: 77, Number: 9},
		}
		for range 2 {
			if err := e.MarkReturned(e.ctx, returns); err != nil {
				t.Fatal(err)
			}
			returns[0].Number = 5 // ignored: the first number stays
		}
		if got, want := read(0, 100), idsOf([]sale.Order{orders[1], orders[3], orders[4]}); !slices.Equal(got, want) {
			t.Fatalf("returning %v, want %v", got, want)
		}
		e.wantStatus(t, sale.StatusCreated, orders[6])
		returned, err := e.Returned(e.ctx, append(idsOf(orders), dead.ID, 77))
		known := idsOf(returned)
		slices.Sort(known)
		if want := idsOf([]sale.Order{orders[0], orders[2], dead}); err != nil || !slices.Equal(known, want) {
			t.Fatalf("returned %v, %v; want %v", known, err, want)
		}

		// Counts as of instants of Redis: before and after return 1, and with a return that the row does not record yet.
		for _, c := range []struct {
			at   store.Instant
			want int64
		}{
			{store.Instant{Accepted: math.MaxInt64}, 5},
			{store.Instant{Accepted: math.MaxInt64, Returned: 1}, 4},
			{store.Instant{Accepted: math.MaxInt64, Returned: 4}, 4}, // not 5: the first number stayed
			{store.Always, 3},
			{store.Instant{Accepted: math.MaxInt64, Returned: 1, Unrecorded: []sale.OrderID{orders[3].ID, orders[0].ID}}, 3},
			{store.Instant{Accepted: orders[3].Serial, Returned: 1}, 3},
		} {
			got, err := e.Count(e.ctx, spread.Part{SaleID: "s"}, c.at, append(idsOf(orders), dead.ID))
			if err != nil || got.Returning != c.want || got.Sold != 2 || len(got.Among) != 7 ||
				slices.Contains(got.Among, dead.ID) {
				t.Errorf("at %+v: %+v, %v; want %d returning", c.at, got, err, c.want)
			}
		}

		// OrdersOf includes the cancelled orders whose return is not recorded.
		statuses := map[sale.Status][]sale.Order{}
		for _, o := range e.ordersOf(t, spread.Part{SaleID: "s"}) {
			statuses[o.Status] = append(statuses[o.Status], o)
		}
		if got, want := idsOf(statuses[sale.StatusCancelled]), read(0, 100); len(statuses[sale.StatusCreated]) != 2 ||
			!slices.Equal(got, want) {
			t.Errorf("orders by status %v, want 2 created and %v cancelled", statuses, want)
		}
		stop := errors.New("enough")
		if err := e.OrdersOf(e.ctx, spread.Part{SaleID: "s"}, func(o sale.Order) error {
			if o.Status == sale.StatusCancelled {
				return stop
			}
			return nil
		}); !errors.Is(err, stop) {
			t.Errorf("stopped with %v", err)
		}
	})
}

// An order that has both a dead letter and a cancelled row returns its unit once, for the row.
func TestCancelDeadAfterCancelReturnsNoUnit(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		o := storetest.Order("s", "ann")
		e.write(t, o)
		e.cancel(t, o)
		for range 2 {
			e.cancelDead(t, o, true)
			if err := e.MarkReturned(e.ctx, []store.Return{{ID: o.ID, Number: 1}}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOrderRowsFiltersAndPages(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		e.create(t, "other", 10)
		orders := storetest.Orders("s", 5)
		others := storetest.Orders("other", 2)
		others[0].Buyer = orders[0].Buyer
		e.write(t, append(slices.Clone(others), orders...)...)
		e.pay(t, orders[1], "ref")
		if _, _, err := e.CancelOrder(e.ctx, orders[2].ID); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			q    store.OrderQuery
			want []sale.Order
		}{
			{store.OrderQuery{SaleID: "s"}, orders},
			{store.OrderQuery{SaleID: "s", Limit: 2}, orders[:2]},
			{store.OrderQuery{SaleID: "s", Limit: 2, After: orders[1].ID}, orders[2:4]},
			{store.OrderQuery{SaleID: "s", Status: sale.StatusPaid}, orders[1:2]},
			{store.OrderQuery{Status: sale.StatusCancelled}, orders[2:3]},
			{store.OrderQuery{ID: orders[4].ID}, orders[4:]},
			{store.OrderQuery{SaleID: "s", Newest: true, Limit: 2}, orders[3:]},
			{store.OrderQuery{SaleID: "s", Newest: true, After: orders[1].ID}, orders[:1]},
			{store.OrderQuery{Buyer: orders[0].Buyer, SaleID: "s"}, orders[:1]},
			{store.OrderQuery{Buyer: orders[0].Buyer, SaleID: "other", Newest: true}, others[:1]},
			{store.OrderQuery{Buyer: orders[0].Buyer}, []sale.Order{orders[0], others[0]}},
			{store.OrderQuery{Buyer: orders[2].Buyer, Status: sale.StatusCancelled}, orders[2:3]},
			{store.OrderQuery{Buyer: orders[2].Buyer, Status: sale.StatusCreated}, nil},
			{store.OrderQuery{Buyer: "' OR 1=1 --"}, nil},
			{store.OrderQuery{ID: 77}, nil},
			{store.OrderQuery{SaleID: "' OR 1=1 --"}, nil},
		} {
			got, err := e.OrderRows(e.ctx, c.q)
			var ids []sale.OrderID
			for _, r := range got {
				ids = append(ids, r.ID)
			}
			if c.q.Newest {
				slices.Reverse(ids)
			}
			if err != nil || !slices.Equal(ids, idsOf(c.want)) {
				t.Errorf("%+v: %v, %v; want %v", c.q, ids, err, idsOf(c.want))
			}
		}
		got, err := e.OrderRows(e.ctx, store.OrderQuery{ID: orders[1].ID})
		if err != nil || got[0].Status != sale.StatusPaid || got[0].Reference != "ref" || got[0].CancelledBy != "" ||
			got[0].Returning {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
