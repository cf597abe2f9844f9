package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/sale"
)

// orderWaiters holds requests until their order has a final status. One loop queries SQL for all awaited orders in
// each round, so the number of waiters does not multiply the queries. The loop runs only while a request waits. It is
// safe for concurrent use.
type orderWaiters struct {
	orders    Orders
	dead      DeadLetters
	max       int
	interval  time.Duration // between two rounds
	deadEvery int           // rounds between two checks for dead letters, which are rare
	stopping  <-chan struct{}
	checking  atomic.Bool // a check for dead letters is in progress

	mu      sync.Mutex
	byOrder map[sale.OrderID]*awaitedOrder
	waiters int
	running bool
}

// awaitedOrder is an order that at least one request waits for.
type awaitedOrder struct {
	waiters int
	final   chan struct{} // closed when the order is final
}

const (
	waitInterval = 50 * time.Millisecond
	waitTimeout  = time.Second // of one query
)

func newOrderWaiters(orders Orders, dead DeadLetters, most int, stopping <-chan struct{}) *orderWaiters {
	return &orderWaiters{
		orders: orders, dead: dead, max: most, interval: waitInterval, deadEvery: 20, stopping: stopping,
		byOrder: map[sale.OrderID]*awaitedOrder{},
	}
}

// wait returns when the order is final, after the timeout, or when the server drains. If the maximum number of
// requests is waiting, it returns immediately.
func (w *orderWaiters) wait(id sale.OrderID, timeout time.Duration) {
	final, ok := w.enter(id)
	if !ok {
		return
	}
	defer w.leave(id)
	select {
	case <-final:
	case <-time.After(timeout):
	case <-w.stopping:
	}
}

// enter adds a waiter. Every successful call needs one call of leave.
func (w *orderWaiters) enter(id sale.OrderID) (final <-chan struct{}, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters >= w.max {
		return nil, false
	}
	w.waiters++
	a := w.byOrder[id]
	if a == nil {
		a = &awaitedOrder{final: make(chan struct{})}
		w.byOrder[id] = a
	}
	a.waiters++
	if !w.running {
		w.running = true
		go w.run()
	}
	return a.final, true
}

func (w *orderWaiters) leave(id sale.OrderID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters--
	if a := w.byOrder[id]; a != nil {
		if a.waiters--; a.waiters == 0 {
			delete(w.byOrder, id)
		}
	}
}

func (w *orderWaiters) run() {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for round := 1; ; round++ {
		<-tick.C
		if !w.runOnce(round%w.deadEvery == 0) {
			return
		}
	}
}

// runOnce queries the status of all awaited orders. It returns false if no request waits.
func (w *orderWaiters) runOnce(checkDead bool) bool {
	ids, waiting := w.awaited()
	if !waiting || len(ids) == 0 {
		return waiting
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	statuses, err := w.orders.Statuses(ctx, ids)
	if err == nil {
		for id, status := range statuses {
			if status.Final() {
				w.notify(id)
			}
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

// awaited returns the orders that are not final yet. waiting is false, and running is reset, if no request waits.
func (w *orderWaiters) awaited() (ids []sale.OrderID, waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters == 0 {
		w.running = false
		return nil, false
	}
	for id, a := range w.byOrder {
		select {
		case <-a.final: // its waiters are about to leave
		default:
			ids = append(ids, id)
		}
	}
	return ids, true
}

// notifyDead notifies the waiters of dead orders. It reads single dead letters only if there are any.
func (w *orderWaiters) notifyDead(ids []sale.OrderID) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	stats, err := w.dead.Stats(ctx)
	if err != nil || stats.Dead == 0 {
		return
	}
	for _, id := range ids {
		if _, err := w.dead.DeadLetter(ctx, id); err == nil {
			w.notify(id)
		}
	}
}

// notify wakes the waiters of a final order.
func (w *orderWaiters) notify(id sale.OrderID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.byOrder[id]
	if a == nil {
		return
	}
	select {
	case <-a.final:
	default:
		close(a.final)
	}
}
