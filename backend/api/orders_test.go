package api

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

func (s *site) order(buyer string, id sale.OrderID, query string) answer {
	s.t.Helper()
	return s.ask("GET", "/v1/orders/"+id.String()+query, "", "Authorization: "+bearerOf(s.t, buyer))
}

func bought(n uint32, buyer string, status sale.Status) sale.Order {
	return sale.Order{ID: orderID(n), SaleID: "drop", Buyer: buyer, Nth: 1, Serial: int64(n), Status: status}
}

func TestOrderIsShownWhereverItIs(t *testing.T) {
	w := newWorld()
	w.rows[orderID(1)] = bought(1, "ann", sale.StatusCreated)
	w.queued[orderID(1)] = bought(1, "ann", sale.StatusQueued) // the buyers' hash keeps rows too
	w.queued[orderID(2)] = bought(2, "ann", sale.StatusQueued)
	w.dead[orderID(3)] = queue.DeadLetter{Message: bought(3, "ann", sale.StatusQueued)}
	w.queued[orderID(3)] = bought(3, "ann", sale.StatusQueued) // and dead ones
	w.rows[orderID(4)] = bought(4, "ann", sale.StatusCancelled)
	s := w.serve(t)
	for n, want := range map[uint32]string{1: "created", 2: "queued", 3: "dead", 4: "cancelled"} {
		a := s.order("ann", orderID(n), "")
		body := fmt.Sprintf(`{"order_id":"%s","sale_id":"drop","status":"%s","created_at":"2026-11-27T10:00:07Z"}`+"\n", orderID(n), want)
		if a.status != 200 || a.body != body {
			t.Errorf("order %d: %d %s want %s", n, a.status, a.body, body)
		}
		if a.header.Get("Cache-Control") != "no-store" {
			t.Error("somebody's order may be cached")
		}
		wantProblem(t, s.order("bob", orderID(n), ""), 404, "not-found")
	}
	wantProblem(t, s.order("ann", orderID(5), ""), 404, "not-found")
}

func TestOrderWithSQLDownComesFromRedisAsQueued(t *testing.T) {
	w := newWorld()
	w.sqlErr = errRedisDown
	w.queued[orderID(1)] = bought(1, "ann", sale.StatusQueued)
	w.dead[orderID(2)] = queue.DeadLetter{Message: bought(2, "ann", sale.StatusQueued)}
	s := w.serve(t)
	if a := s.order("ann", orderID(1), ""); a.status != 200 || a.field(t, "status") != "queued" {
		t.Errorf("queued: %d %s", a.status, a.body)
	}
	if a := s.order("ann", orderID(2), ""); a.status != 200 || a.field(t, "status") != "dead" {
		t.Errorf("dead: %d %s", a.status, a.body)
	}
	wantProblem(t, s.order("ann", orderID(3), ""), 503, "temporarily-unavailable")
	w.do(func() { w.sqlErr, w.redisErr = nil, errRedisDown })
	wantProblem(t, s.order("ann", orderID(1), ""), 503, "temporarily-unavailable")
}

func TestWaitAnswersWhenTheOrderBecomesARow(t *testing.T) {
	w := newWorld()
	w.queued[orderID(1)] = bought(1, "ann", sale.StatusQueued)
	s := w.serve(t)
	got := make(chan answer, 1)
	go func() { got <- s.order("ann", orderID(1), "?wait=30s") }()
	testenv.Eventually(t, 5*time.Second, "somebody asks for statuses", func() (yes bool) { w.do(func() { yes = w.statuses > 0 }); return })
	w.do(func() { w.rows[orderID(1)] = bought(1, "ann", sale.StatusCreated) })
	start := time.Now()
	a := <-got
	if a.status != 200 || a.field(t, "status") != "created" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if took := time.Since(start); took > 20*time.Second { // it is asked for often, and not only when the wait is over
		t.Errorf("told %v after it was a row", took)
	}
}

func TestWaitEndsAtItsTimeAndWhenDeadAndAtOnceForFinalOrders(t *testing.T) {
	w := newWorld()
	w.queued[orderID(1)] = bought(1, "ann", sale.StatusQueued)
	w.queued[orderID(2)] = bought(2, "ann", sale.StatusQueued)
	w.rows[orderID(3)] = bought(3, "ann", sale.StatusPaid)
	s := w.serve(t)
	if a := s.order("ann", orderID(1), "?wait=150ms"); a.status != 200 || a.field(t, "status") != "queued" {
		t.Errorf("timed out: %d %s", a.status, a.body)
	}
	if a := s.order("ann", orderID(3), "?wait=30s"); a.field(t, "status") != "paid" {
		t.Errorf("final: %d %s", a.status, a.body)
	}
	got := make(chan answer, 1)
	go func() { got <- s.order("ann", orderID(2), "?wait=30s") }()
	testenv.Eventually(t, 5*time.Second, "somebody waits", func() bool { return s.order("bob", orderID(9), "").status == 404 && len(w.waitingIDs(s)) > 0 })
	w.do(func() { w.dead[orderID(2)] = queue.DeadLetter{Message: bought(2, "ann", sale.StatusQueued)} })
	died := time.Now()
	if a := <-got; a.field(t, "status") != "dead" {
		t.Errorf("dead: %d %s", a.status, a.body)
	}
	if took := time.Since(died); took > 15*time.Second {
		t.Errorf("told %v after it died", took)
	}
}

func (w *world) waitingIDs(s *site) []sale.OrderID {
	room := s.app.room
	room.mu.Lock()
	defer room.mu.Unlock()
	var ids []sale.OrderID
	for id := range room.waiting {
		ids = append(ids, id)
	}
	return ids
}

// A thousand waiters cost one query a round, not a thousand, and nothing when they are gone.
func TestAThousandWaitersShareOneQuery(t *testing.T) {
	const n = 1000
	w := newWorld()
	room := newWaitingRoom(w, w, n+1, make(chan struct{}))
	var people sync.WaitGroup
	for i := range uint32(n) {
		people.Go(func() { room.wait(orderID(i/2), time.Minute) }) // two for each order
	}
	testenv.Eventually(t, 5*time.Second, "everybody waits", func() bool { room.mu.Lock(); defer room.mu.Unlock(); return room.people == n })
	var before int
	w.do(func() { before, w.asked = w.statuses, 0 })
	testenv.Eventually(t, 5*time.Second, "three rounds", func() (yes bool) { w.do(func() { yes = w.statuses >= before+3 }); return })
	w.do(func() {
		if w.asked != n/2 {
			t.Errorf("a round asked for %d orders, want %d", w.asked, n/2)
		}
		for i := range uint32(n) {
			w.rows[orderID(i)] = bought(i, "ann", sale.StatusCreated)
		}
		before = w.statuses
	})
	people.Wait()
	w.do(func() {
		if w.statuses > before+2 {
			t.Errorf("%d queries for the last round", w.statuses-before)
		}
	})
	testenv.Eventually(t, 5*time.Second, "the loop ends", func() bool { room.mu.Lock(); defer room.mu.Unlock(); return !room.running && len(room.waiting) == 0 })
}

func TestFullWaitingRoomAnswersAtOnce(t *testing.T) {
	w := newWorld()
	room := newWaitingRoom(w, w, 1, make(chan struct{}))
	done := make(chan struct{})
	go func() { room.wait(orderID(1), time.Minute); close(done) }()
	testenv.Eventually(t, 5*time.Second, "one waits", func() bool { room.mu.Lock(); defer room.mu.Unlock(); return room.people == 1 })
	room.wait(orderID(2), time.Hour) // must return, or the test times out
	w.do(func() { w.rows[orderID(1)] = bought(1, "ann", sale.StatusCreated) })
	<-done
}
