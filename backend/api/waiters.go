package api

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/sale"
)

// orderWaiters holds requests until their order has a final status. One loop queries SQL for all awaited orders in
// each round, so the number of waiters does not multiply the queries. The loop runs only while a request waits. It is
// safe for concurrent use.
type orderWaiters struct {
	orders   Orders
	dead     DeadLetters
	max      int
	serving  context.Context // of the server: waits end with it
	checking atomic.Bool     // a check for dead letters is in progress

	mu      sync.Mutex
	byOrder map[sale.OrderID]*awaitedOrder // those that are not final
	waiters int                            // of all orders in byOrder
	running bool
}

// awaitedOrder is an order that at least one request waits for.
type awaitedOrder struct {
	id      sale.OrderID
	waiters int
	final   chan struct{} // closed when the order is final
}

const (
	waitInterval = 50 * time.Millisecond // between two rounds
	waitTimeout  = time.Second           // of one query
	deadEvery    = 20                    // rounds between two checks for dead letters, which are rare
)

func newOrderWaiters(orders Orders, dead DeadLetters, most int, serving context.Context) *orderWaiters {
	return &orderWaiters{
		orders: orders, dead: dead, max: most, serving: serving, byOrder: map[sale.OrderID]*awaitedOrder{},
	}
}

// wait returns when the order is final, after the timeout, or when the server drains. If the maximum number of
// requests is waiting, it returns immediately.
func (w *orderWaiters) wait(id sale.OrderID, timeout time.Duration) {
	a := w.enter(id)
	if a == nil {
		return
	}
	defer w.leave(a)
	select {
	case <-a.final:
	case <-time.After(timeout):
	case <-w.serving.Done():
	}
}

// enter adds a waiter, which calls leave later. It returns nil if the maximum is reached.
func (w *orderWaiters) enter(id sale.OrderID) *awaitedOrder {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters >= w.max {
		return nil
	}
	w.waiters++
	a := w.byOrder[id]
	if a == nil {
		a = &awaitedOrder{id: id, final: make(chan struct{})}
		w.byOrder[id] = a
	}
	a.waiters++
	if !w.running {
		w.running = true
		go w.run()
	}
	return a
}

// leave removes a waiter. It does nothing if the order is final, because notify has then removed its waiters.
func (w *orderWaiters) leave(a *awaitedOrder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byOrder[a.id] != a {
		return
	}
	w.waiters--
	if a.waiters--; a.waiters == 0 {
		delete(w.byOrder, a.id)
	}
}

func (w *orderWaiters) run() {
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	for round := 1; ; round++ {
		<-tick.C
		if !w.runOnce(round%deadEvery == 0) {
			return
		}
	}
}

// runOnce queries the status of all awaited orders. It returns false if there are none.
func (w *orderWaiters) runOnce(checkDead bool) bool {
	ids := w.awaited()
	if len(ids) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	statuses, _ := w.orders.Statuses(ctx, ids) // after an error the next round tries again
	for id, status := range statuses {
		if status.Final() {
			w.notify(id)
		}
	}
	if checkDead && w.checking.CompareAndSwap(false, true) { // concurrently, so that many ids do not delay the next round
		go func() {
			defer w.checking.Store(false)
			w.notifyDead(ids)
		}()
	}
	return true
}

// awaited returns the awaited orders, and resets running if there are none.
func (w *orderWaiters) awaited() []sale.OrderID {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.byOrder) > 0
	return slices.Collect(maps.Keys(w.byOrder))
}

// notifyDead notifies the waiters of dead orders.
func (w *orderWaiters) notifyDead(ids []sale.OrderID) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	w.dead.Dead(ctx, ids, w.notify)
}

// notify wakes and removes the waiters of a final order.
func (w *orderWaiters) notify(id sale.OrderID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.byOrder[id]; a != nil {
		close(a.final)
		w.waiters -= a.waiters
		delete(w.byOrder, id)
	}
}
