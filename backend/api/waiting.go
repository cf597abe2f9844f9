package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/sale"
)

// waitingRoom holds requests back until their order is final. One loop asks SQL about all orders that somebody waits for in one
// query per round, so a thousand waiters cost what one costs; it runs only while somebody waits.
type waitingRoom struct {
	orders   Orders
	dead     DeadLetters
	max      int
	interval time.Duration // between two rounds
	deadEach int           // rounds between two looks at the dead letters, which are rare and slow to come
	stopping <-chan struct{}
	looking  atomic.Bool // at dead letters

	mu      sync.Mutex
	waiting map[sale.OrderID]*awaited
	people  int
	running bool
}

// awaited is one order that at least one request waits for.
type awaited struct {
	people int
	final  chan struct{} // closed when the order is final
}

const (
	waitInterval = 50 * time.Millisecond
	waitTimeout  = time.Second // of one question about all of them
)

func newWaitingRoom(orders Orders, dead DeadLetters, most int, stopping <-chan struct{}) *waitingRoom {
	return &waitingRoom{
		orders: orders, dead: dead, max: most, interval: waitInterval, deadEach: 20, stopping: stopping, waiting: map[sale.OrderID]*awaited{},
	}
}

// wait returns when the order is final as far as the room knows, after the timeout, when the application drains, or at once when
// the room is full.
func (w *waitingRoom) wait(id sale.OrderID, timeout time.Duration) {
	final, ok := w.enter(id)
	if !ok {
		return
	}
	defer w.leave(id)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-final:
	case <-timer.C:
	case <-w.stopping:
	}
}

func (w *waitingRoom) enter(id sale.OrderID) (final <-chan struct{}, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.people >= w.max {
		return nil, false
	}
	w.people++
	a := w.waiting[id]
	if a == nil {
		a = &awaited{final: make(chan struct{})}
		w.waiting[id] = a
	}
	a.people++
	if !w.running {
		w.running = true
		go w.run()
	}
	return a.final, true
}

func (w *waitingRoom) leave(id sale.OrderID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.people--
	if a := w.waiting[id]; a != nil {
		if a.people--; a.people == 0 {
			delete(w.waiting, id)
		}
	}
}

func (w *waitingRoom) run() {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for round := 1; ; round++ {
		<-tick.C
		if !w.round(round%w.deadEach == 0) {
			return
		}
	}
}

// round asks once about everybody. It returns false, and the loop ends, when nobody waits.
func (w *waitingRoom) round(lookForDead bool) bool {
	w.mu.Lock()
	ids := make([]sale.OrderID, 0, len(w.waiting))
	for id, a := range w.waiting {
		select {
		case <-a.final: // told already; its people are about to leave
		default:
			ids = append(ids, id)
		}
	}
	if w.people == 0 {
		w.running = false
		w.mu.Unlock()
		return false
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return true
	}

	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	statuses, err := w.orders.Statuses(ctx, ids)
	if err == nil {
		for id, status := range statuses {
			if status.Final() {
				w.tell(id)
			}
		}
	}
	if lookForDead && w.looking.CompareAndSwap(false, true) { // aside, so that many ids do not hold up the next round
		go func() {
			defer w.looking.Store(false)
			w.tellDead(ids)
		}()
	}
	return true
}

// tellDead asks for single dead letters only when there are any.
func (w *waitingRoom) tellDead(ids []sale.OrderID) {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	stats, err := w.dead.Stats(ctx)
	if err != nil || stats.Dead == 0 {
		return
	}
	for _, id := range ids {
		if _, err := w.dead.DeadLetter(ctx, id); err == nil {
			w.tell(id)
		}
	}
}

func (w *waitingRoom) tell(id sale.OrderID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.waiting[id]
	if a == nil {
		return
	}
	select {
	case <-a.final:
	default:
		close(a.final)
	}
}
