package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// env is a database of one engine.
type env struct {
	*sqlTables
	*events.Store
	url string
	ctx context.Context
}

type sqlTables = store.Store

// onEngines runs a test on an empty database of each engine.
func onEngines(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	storetest.Engines(t, func(t *testing.T, db *store.Store, databaseURL string) {
		test(t, &env{db, events.NewStore(db.DB), databaseURL, t.Context()})
	})
}

func (e *env) create(t *testing.T, id string, stock int64) {
	t.Helper()
	if _, err := e.CreateSale(e.ctx, storetest.WithHold(id, stock, time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func (e *env) write(t *testing.T, orders ...sale.Order) {
	t.Helper()
	if err := e.Write(e.ctx, orders); err != nil {
		t.Fatal(err)
	}
}

func (e *env) pay(t *testing.T, o sale.Order, reference string) {
	t.Helper()
	if settled, _, err := e.Pay(e.ctx, storetest.Payment(o, reference)); err != nil || settled != store.SettledPaid {
		t.Fatalf("pay: %s, %v", settled, err)
	}
}

// allChanges reads the outbox like a relay, limit changes at a time, and checks that positions have no gaps.
func (e *env) allChanges(t *testing.T, after int64, limit int) []events.Event {
	t.Helper()
	var all []events.Event
	for {
		part, err := e.Changes(e.ctx, after, limit)
		if err != nil || len(part) > limit {
			t.Fatalf("%d changes, %v; want at most %d", len(part), err, limit)
		}
		if len(part) == 0 {
			return all
		}
		for _, c := range part {
			if c.Position != after+1 {
				t.Fatalf("position %d follows %d", c.Position, after)
			}
			after = c.Position
		}
		all = append(all, part...)
	}
}

func describe(changes []events.Event) []string {
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = fmt.Sprintf("%s was %s now %s", c.OrderID, c.Was, c.Status())
	}
	slices.Sort(names)
	return names
}

func TestChangesOfEveryKind(t *testing.T) {
	onEngines(t, changesOfEveryKind)
}

func changesOfEveryKind(t *testing.T, e *env) {
	e.create(t, "h", 100)
	orders := storetest.Orders("h", 7)
	dead := storetest.Order("h", "dead")
	e.write(t, orders[:4]...)
	e.write(t, orders[:4]...) // again: no change
	e.write(t, orders[2:]...) // overlapping
	e.pay(t, orders[0], "p1")
	e.pay(t, orders[0], "p1") // again
	for range 2 {
		if _, _, err := e.CancelOrder(e.ctx, orders[1].ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.CancelDead(e.ctx, store.DeadOrder{Order: dead}); err != nil {
			t.Fatal(err)
		}
	}
	if wasRow, err := e.CancelDead(e.ctx, store.DeadOrder{Order: orders[2]}); err != nil ||
		!wasRow { // it is a row, so it is not cancelled
		t.Fatal(wasRow, err)
	}
	storetest.Elapse(t, e.url, orders[3], orders[4])
	if got, err := e.CancelOverdue(e.ctx, 100); err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	e.write(t, dead, orders[1]) // too late: both are cancelled
	var bad []sale.Order
	for range 200 {
		bad = append(bad, storetest.Order("h", "greedy"))
	}
	if err := e.Write(e.ctx, bad); !errors.Is(err, store.ErrRejected) {
		t.Fatalf("a batch with 200 orders for one slot: %v", err)
	}

	var want []string
	for _, o := range orders {
		want = append(want, fmt.Sprintf("%s was queued now created", o.ID))
	}
	want = append(want, fmt.Sprintf("%s was created now paid", orders[0].ID), fmt.Sprintf("%s was queued now cancelled",
		dead.ID))
	for _, o := range []sale.Order{orders[1], orders[3], orders[4]} {
		want = append(want, fmt.Sprintf("%s was created now cancelled", o.ID))
	}
	slices.Sort(want)
	got := e.allChanges(t, 0, 3)
	if !slices.Equal(describe(got), want) {
		t.Fatalf("changes\n%s\nwant\n%s", strings.Join(describe(got), "\n"), strings.Join(want, "\n"))
	}
	last := map[sale.OrderID]sale.Status{}
	for _, c := range got {
		if was := last[c.OrderID]; was != "" && was != c.Was || was == "" && c.Was != sale.StatusQueued {
			t.Errorf("order %s was %s, the change reports %s", c.OrderID, was, c.Was)
		}
		last[c.OrderID] = c.Status()
		if c.SaleID != "h" || c.Buyer == "" || c.Slot != 1 || c.Price != (sale.Price{Amount: 9900, Currency: "EUR"}) ||
			time.Since(c.At).Abs() > time.Minute {
			t.Errorf("%+v", c)
		}
	}
}

func TestChangesAreKeptUntilDeleted(t *testing.T) {
	onEngines(t, changesAreKept)
}

func changesAreKept(t *testing.T, e *env) {
	e.create(t, "s", 100)
	e.write(t, storetest.Orders("s", 5)...)
	first := e.allChanges(t, 0, 100)
	e.write(t, storetest.Orders("s", 5)...)
	all := e.allChanges(t, 0, 100)
	if len(all) != 10 || !slices.Equal(all[:5], first) {
		t.Fatalf("second read: %v; first: %v", all, first)
	}
	if got := e.allChanges(t, 3, 100); !slices.Equal(got, all[3:]) {
		t.Errorf("after 3: %v", got)
	}
	if age, err := e.Unrelayed(e.ctx, 9); err != nil || age < 0 || age > time.Minute {
		t.Errorf("oldest after 9: %s, %v", age, err)
	}
	for range 2 {
		if err := e.DeleteChanges(e.ctx, 7); err != nil { // a part of the second transaction: all of it stays
			t.Fatal(err)
		}
		if got := e.allChanges(t, 5, 100); !slices.Equal(got, all[5:]) {
			t.Errorf("after 5: %v", got)
		}
		if got, err := e.Changes(e.ctx, 0, 100); err != nil || !slices.Equal(got, all[5:]) {
			t.Errorf("deleted changes are returned: %v, %v", got, err)
		}
		if upTo, err := e.RelayedThrough(e.ctx); err != nil || upTo != 5 {
			t.Errorf("relayed through %d, %v; want 5", upTo, err)
		}
	}
	if err := e.DeleteChanges(e.ctx, 10); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Changes(e.ctx, 0, 100); err != nil || len(got) != 0 {
		t.Errorf("all deleted: %v, %v", got, err)
	}
	if upTo, err := e.RelayedThrough(e.ctx); err != nil || upTo != 10 {
		t.Errorf("relayed through %d, %v; want 10", upTo, err)
	}
	if age, err := e.Unrelayed(e.ctx, 0); err != nil || age != 0 {
		t.Errorf("oldest of an empty outbox: %s, %v", age, err)
	}
	e.write(t, storetest.Order("s", "next"))
	if got := e.allChanges(t, 10, 100); len(got) != 1 {
		t.Errorf("positions start again: %v", got)
	}
	e.write(t, storetest.Order("s", "later"))
	// Redis holds positions of a database that was replaced by a backup
	if got := e.allChanges(t, 500, 100); len(got) != 1 {
		t.Errorf("after 500: %v", got)
	}
}

// Positions also reflect the order of two changes of one order, while other transactions commit.
func TestConcurrentReadersAssignOnePositionPerChange(t *testing.T) {
	onEngines(t, changesRace)
}

func changesRace(t *testing.T, e *env) {
	const writers, rounds = 4, 12
	e.create(t, "s", writers*rounds*3)
	var mu sync.Mutex
	seen := map[int64]events.Event{}
	stop := make(chan struct{})
	var readers, wg sync.WaitGroup
	read := func() {
		for after := int64(0); ; {
			part, err := e.Changes(e.ctx, after, 5)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			for _, c := range part {
				if was, ok := seen[c.Position]; ok && (was.OrderID != c.OrderID || was.Status() != c.Status()) {
					t.Errorf("position %d is %v and %v", c.Position, was, c)
				}
				seen[c.Position] = c
				after = c.Position
			}
			mu.Unlock()
			if len(part) == 0 {
				select {
				case <-stop:
					return
				default:
				}
			}
		}
	}
	for range 3 {
		readers.Go(read)
	}
	for range writers {
		wg.Go(func() {
			for range rounds {
				batch := storetest.Orders("s", 3)
				if err := e.Write(e.ctx, batch); err != nil {
					t.Error(err)
					return
				}
				if _, _, err := e.CancelOrder(e.ctx, batch[0].ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	readers.Wait()
	if len(seen) != writers*rounds*4 {
		t.Fatalf("%d changes, want %d", len(seen), writers*rounds*4)
	}
	created := map[sale.OrderID]bool{}
	for n := int64(1); n <= int64(len(seen)); n++ {
		c, ok := seen[n]
		if !ok {
			t.Fatalf("no change has position %d", n)
		}
		if c.Status() == sale.StatusCancelled && !created[c.OrderID] {
			t.Errorf("order %s is cancelled before it is created", c.OrderID)
		}
		if c.Status() == sale.StatusCreated {
			if created[c.OrderID] {
				t.Errorf("order %s is created twice", c.OrderID)
			}
			created[c.OrderID] = true
		}
	}
}

const rehearsal = sale.RehearsalPrefix + "s-x"

// Changes of a rehearsal are omitted, also in transactions with real orders.
func TestChangesOmitRehearsals(t *testing.T) {
	onEngines(t, omitsRehearsals)
}

func omitsRehearsals(t *testing.T, e *env) {
	e.create(t, "s", 100)
	e.create(t, rehearsal, 100)
	of, real := storetest.Orders(rehearsal, 5), storetest.Orders("s", 2)
	e.write(t, of[0], real[0], of[1], of[2])
	e.write(t, of[3])
	e.write(t, of[3], of[4], real[1]) // in part stored already
	e.pay(t, of[0], "p1")
	if _, _, err := e.CancelOrder(e.ctx, of[1].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CancelDead(e.ctx, store.DeadOrder{Order: storetest.Order(rehearsal, "dead")}); err != nil {
		t.Fatal(err)
	}
	storetest.Elapse(t, e.url, of[2])
	if got, err := e.CancelOverdue(e.ctx, 100); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	var want []string
	for _, o := range real {
		want = append(want, fmt.Sprintf("%s was queued now created", o.ID))
	}
	slices.Sort(want)
	if got := describe(e.allChanges(t, 0, 100)); !slices.Equal(got, want) {
		t.Fatalf("changes %v\nwant %v", got, want)
	}
	if _, sold, err := e.Sale(e.ctx, rehearsal); err != nil || sold != 3 {
		t.Fatalf("%d sold, %v; want 3", sold, err)
	}
}
