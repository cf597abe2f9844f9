package api

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
	"sluice/test/testenv"
)

func (s *site) order(buyer string, id sale.OrderID, query string) servertest.Answer {
	s.T.Helper()
	return s.Do("GET", "/v1/orders/"+id.String()+query, "", "Authorization: "+bearerOf(s.T, buyer))
}

func TestOrderIsFoundInSQLAndInRedis(t *testing.T) {
	w := newWorld()
	w.rows[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusCreated)
	w.queued[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusQueued) // the slots name rows too
	w.queued[servertest.OrderID(2)] = servertest.Order(2, "ann", sale.StatusQueued)
	w.dead[servertest.OrderID(3)] = queue.DeadLetter{Message: servertest.Order(3, "ann", sale.StatusQueued)}
	w.queued[servertest.OrderID(3)] = servertest.Order(3, "ann", sale.StatusQueued) // and dead ones
	w.rows[servertest.OrderID(4)] = servertest.Order(4, "ann", sale.StatusCancelled)
	s := w.serve(t)
	for n, want := range map[uint32]string{1: "created", 2: "queued", 3: "dead", 4: "cancelled"} {
		a := s.order("ann", servertest.OrderID(n), "")
		body := fmt.Sprintf(`{"order_id":"%s","sale_id":"drop","status":"%s","created_at":"2026-11-27T10:00:07Z"}`+"\n",
			servertest.OrderID(n), want)
		if a.Status != 200 || a.Body != body {
			t.Errorf("order %d: %d %s want %s", n, a.Status, a.Body, body)
		}
		if a.Header.Get("Cache-Control") != "no-store" {
			t.Error("an order may be cached")
		}
		servertest.WantProblem(t, s.order("bob", servertest.OrderID(n), ""), 404, "not-found")
	}
	servertest.WantProblem(t, s.order("ann", servertest.OrderID(5), ""), 404, "not-found")
}

// releasing is a Finder. Before it reads an order, the order becomes a row, is cancelled, and loses its slot.
type releasing struct{ *world }

func (r releasing) FindOrder(ctx context.Context, buyer string, id sale.OrderID) (sale.Order, error) {
	r.do(func() {
		delete(r.queued, id)
		r.rows[id] = servertest.Order(id.Sequence(), "ann", sale.StatusCancelled)
	})
	return r.world.FindOrder(ctx, buyer, id)
}

func TestOrderThatIsCancelledDuringTheSearchIsFound(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	cfg.Finder = releasing{w}
	s := serve(t, cfg)
	w.queued[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusQueued)
	if a := s.order("ann", servertest.OrderID(1), ""); a.Status != 200 || a.Field(t, "status") != "cancelled" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	servertest.WantProblem(t, s.order("bob", servertest.OrderID(2), ""), 404, "not-found")
}

// An order that Redis may have lost, and that will be restored, is not reported as missing.
func TestOrderThatRedisMayHaveLost(t *testing.T) {
	w := newWorld()
	w.lost = true
	w.rows[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusCreated)
	w.queued[servertest.OrderID(2)] = servertest.Order(2, "ann", sale.StatusQueued)
	s := w.serve(t)
	for n, want := range map[uint32]int{1: 200, 2: 200, 3: 503} {
		if a := s.order("ann", servertest.OrderID(n), ""); a.Status != want {
			t.Errorf("order %d: %d, want %d", n, a.Status, want)
		}
	}
}

func TestOrderWithSQLDownComesFromRedisAsQueued(t *testing.T) {
	w := newWorld()
	w.sqlErr = servertest.ErrRedisDown
	w.queued[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusQueued)
	w.dead[servertest.OrderID(2)] = queue.DeadLetter{Message: servertest.Order(2, "ann", sale.StatusQueued)}
	s := w.serve(t)
	if a := s.order("ann", servertest.OrderID(1), ""); a.Status != 200 || a.Field(t, "status") != "queued" {
		t.Errorf("queued: %d %s", a.Status, a.Body)
	}
	if a := s.order("ann", servertest.OrderID(2), ""); a.Status != 200 || a.Field(t, "status") != "dead" {
		t.Errorf("dead: %d %s", a.Status, a.Body)
	}
	servertest.WantProblem(t, s.order("ann", servertest.OrderID(3), ""), 503, "temporarily-unavailable")
	w.do(func() { w.sqlErr, w.redisErr = nil, servertest.ErrRedisDown })
	servertest.WantProblem(t, s.order("ann", servertest.OrderID(1), ""), 503, "temporarily-unavailable")
}

func TestWaitEndsWhenTheOrderBecomesARow(t *testing.T) {
	w := newWorld()
	w.queued[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusQueued)
	s := w.serve(t)
	got := make(chan servertest.Answer, 1)
	go func() { got <- s.order("ann", servertest.OrderID(1), "?wait=30s") }()
	testenv.Eventually(t, time.Minute, "a request reads statuses",
		func() (yes bool) { w.do(func() { yes = w.statuses > 0 }); return })
	w.do(func() { w.rows[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusCreated) })
	start := time.Now()
	a := <-got
	if a.Status != 200 || a.Field(t, "status") != "created" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if took := time.Since(start); took > 20*time.Second { // the status is polled during the wait
		t.Errorf("reported %v after it was a row", took)
	}
}

func TestWaitEndsAtItsTimeoutAndForDeadAndFinalOrders(t *testing.T) {
	w := newWorld()
	w.queued[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusQueued)
	w.queued[servertest.OrderID(2)] = servertest.Order(2, "ann", sale.StatusQueued)
	w.rows[servertest.OrderID(3)] = servertest.Order(3, "ann", sale.StatusPaid)
	s := w.serve(t)
	if a := s.order("ann", servertest.OrderID(1), "?wait=150ms"); a.Status != 200 || a.Field(t, "status") != "queued" {
		t.Errorf("timed out: %d %s", a.Status, a.Body)
	}
	if a := s.order("ann", servertest.OrderID(3), "?wait=30s"); a.Field(t, "status") != "paid" {
		t.Errorf("final: %d %s", a.Status, a.Body)
	}
	got := make(chan servertest.Answer, 1)
	go func() { got <- s.order("ann", servertest.OrderID(2), "?wait=30s") }()
	testenv.Eventually(t, time.Minute, "a request waits", func() bool {
		return s.order("bob", servertest.OrderID(9), "").Status == 404 && len(w.waitingIDs(s)) > 0
	})
	w.do(func() {
		w.dead[servertest.OrderID(2)] = queue.DeadLetter{Message: servertest.Order(2, "ann", sale.StatusQueued)}
	})
	start := time.Now()
	if a := <-got; a.Field(t, "status") != "dead" {
		t.Errorf("dead: %d %s", a.Status, a.Body)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("reported %v after it became a dead letter", took)
	}
}

func (w *world) waitingIDs(s *site) []sale.OrderID {
	waiters := s.handlers.waiters
	waiters.mu.Lock()
	defer waiters.mu.Unlock()
	var ids []sale.OrderID
	for id := range waiters.byOrder {
		ids = append(ids, id)
	}
	return ids
}

// A thousand waiters share one query per round. Without waiters there are no queries.
func TestAThousandWaitersShareOneQuery(t *testing.T) {
	const n = 1000
	w := newWorld()
	waiters := newOrderWaiters(w, w, n+1, t.Context())
	var requests sync.WaitGroup
	for i := range uint32(n) {
		requests.Go(func() { waiters.wait(servertest.OrderID(i/2), time.Minute) }) // two for each order
	}
	testenv.Eventually(t, time.Minute, "all requests wait",
		func() bool { waiters.mu.Lock(); defer waiters.mu.Unlock(); return waiters.waiters == n })
	var before int
	w.do(func() { before, w.largest = w.statuses, 0 })
	testenv.Eventually(t, time.Minute, "three rounds",
		func() (yes bool) { w.do(func() { yes = w.statuses >= before+3 }); return })
	w.do(func() {
		if w.largest != n/2 {
			t.Errorf("a round queried %d orders, want %d", w.largest, n/2)
		}
		for i := range uint32(n) {
			w.rows[servertest.OrderID(i)] = servertest.Order(i, "ann", sale.StatusCreated)
		}
		before = w.statuses
	})
	requests.Wait()
	w.do(func() {
		if w.statuses > before+2 {
			t.Errorf("%d queries for the last round", w.statuses-before)
		}
	})
	testenv.Eventually(t, time.Minute, "the loop ends",
		func() bool {
			waiters.mu.Lock()
			defer waiters.mu.Unlock()
			return !waiters.running && len(waiters.byOrder) == 0
		})
}

// A request that waits for a dead order returns while the Redis of another shard is down.
func TestWaitForADeadOrderWhileAnotherShardIsDown(t *testing.T) {
	down, up := testenv.StartRedis(t), testenv.StartRedis(t)
	shards := queue.Shards{
		queue.NewList(down.Client(), 0, queue.Config{}), queue.NewList(up.Client(), 1, queue.Config{}),
	}
	id := servertest.OrderID(1) // of shard 1
	dead := keyspace.Shard(1).Dead()
	for _, command := range [][]any{
		{"ZADD", dead.Times(), 1, id.String()}, {"HSET", dead.Letters(), id.String(), "{}"},
	} {
		if err := up.Client().Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	down.Kill()
	newOrderWaiters(newWorld(), shards, 1, t.Context()).wait(id, time.Hour) // must return, or the test times out
}

func TestWaitAtTheMaximumReturnsImmediately(t *testing.T) {
	w := newWorld()
	waiters := newOrderWaiters(w, w, 1, t.Context())
	done := make(chan struct{})
	go func() { waiters.wait(servertest.OrderID(1), time.Minute); close(done) }()
	testenv.Eventually(t, time.Minute, "a request waits",
		func() bool { waiters.mu.Lock(); defer waiters.mu.Unlock(); return waiters.waiters == 1 })
	waiters.wait(servertest.OrderID(2), time.Hour) // must return, or the test times out
	w.do(func() { w.rows[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusCreated) })
	<-done
}

// The list has the rows, queued orders and dead orders of the buyer in the sale, oldest first.
func TestListOfOrdersHasEveryOrderOfTheBuyer(t *testing.T) {
	w := newWorld()
	due := servertest.Order(1, "ann", sale.StatusCreated)
	due.DueAt = due.CreatedAt().Add(15 * time.Minute)
	expired := servertest.Order(2, "ann", sale.StatusCancelled)
	expired.Expired = true
	w.rows[due.ID], w.rows[expired.ID] = due, expired
	w.rows[servertest.OrderID(5)] = servertest.Order(5, "bob", sale.StatusCreated)
	other := servertest.Order(6, "ann", sale.StatusCreated)
	other.SaleID = "other"
	w.rows[other.ID] = other
	for n := range uint32(4) { // the slots name rows and dead orders as well
		w.queued[servertest.OrderID(n+1)] = servertest.Order(n+1, "ann", sale.StatusQueued)
	}
	w.dead[servertest.OrderID(4)] = queue.DeadLetter{Message: servertest.Order(4, "ann", sale.StatusQueued)}
	s := w.serve(t)
	list := func(buyer, query string) servertest.Answer {
		return s.Do("GET", "/v1/me/orders"+query, "", "Authorization: "+bearerOf(t, buyer))
	}
	a := list("ann", "?sale=drop")
	const common = `","sale_id":"drop","status":"%s","created_at":"2026-11-27T10:00:07Z"%s}`
	want := `{"orders":[`
	for i, o := range []struct{ status, more string }{
		{"created", `,"pay_by":"2026-11-27T10:15:07Z"`}, {"cancelled", `,"expired":true`}, {"queued", ""}, {"dead", ""},
	} {
		if i > 0 {
			want += ","
		}
		want += `{"order_id":"` + servertest.OrderID(uint32(i+1)).String() + fmt.Sprintf(common, o.status, o.more)
	}
	if want += "]}\n"; a.Status != 200 || a.Body != want || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v\n%swant\n%s", a.Status, a.Header, a.Body, want)
	}
	if a := list("kim", "?sale=drop"); a.Status != 200 || a.Body != `{"orders":[]}`+"\n" {
		t.Errorf("without orders: %d %s", a.Status, a.Body)
	}
	servertest.WantProblem(t, s.Do("GET", "/v1/me/orders?sale=drop", ""), 401, "unauthorized")
	servertest.WantProblem(t, list("ann", "?sale=none"), 404, "not-found")
	servertest.WantProblem(t, list("ann", "?sale=rehearsal-drop-x"), 404, "not-found")
	servertest.WantProblem(t, list("ann", ""), 400, "bad-request")
	if a := list("ann", ""); !strings.Contains(a.Body, `[{"field":"sale","detail":"must be set"}]`) {
		t.Errorf("without the sale: %s", a.Body)
	}
	servertest.WantProblem(t, list("ann", "?sale=a%20b"), 400, "bad-request")
	w.do(func() { w.sqlErr = servertest.ErrRedisDown })
	servertest.WantProblem(t, list("ann", "?sale=drop"), 503, "temporarily-unavailable")
	w.do(func() { w.sqlErr, w.redisErr = nil, servertest.ErrRedisDown })
	servertest.WantProblem(t, list("ann", "?sale=drop"), 503, "temporarily-unavailable")
}
