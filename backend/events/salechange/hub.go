package salechange

import (
	"sync"

	"sluice/internal/loop"
)

// Hub passes sale notifications to the listeners of this process. It never blocks: a slow listener receives the latest
// notification of each sale, of at most maxPending sales. The zero value is ready to use. It is safe for concurrent
// use.
type Hub struct {
	mu        sync.Mutex
	listeners map[*Listener]struct{} // few: one for each sale that is watched, and one for each edge
}

// maxPending bounds the pending notifications of a listener. Further ones are lost, as any notification may be.
const maxPending = 256

// Listener receives notifications until it is closed. It is safe for concurrent use.
type Listener struct {
	hub    *Hub
	saleID string // "": of every sale
	wake   loop.Wake

	mu      sync.Mutex
	pending []Notification // the latest of each sale, the longest waiting first
}

// Listen returns a Listener of one sale or, if saleID is empty, of all sales without Left. The caller closes it.
func (h *Hub) Listen(saleID string) *Listener {
	l := &Listener{hub: h, saleID: saleID, wake: loop.NewWake()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[*Listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	return l
}

// Close ends the listener. It is idempotent.
func (l *Listener) Close() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	delete(l.hub.listeners, l)
}

// Publish passes a notification to the listeners of its sale and of all sales.
func (h *Hub) Publish(n Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		if l.saleID == n.SaleID || l.saleID == "" && n.Type != Left {
			l.add(n)
		}
	}
}

func (l *Listener) add(n Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.pending {
		if l.pending[i].SaleID == n.SaleID {
			l.pending[i] = n
			return
		}
	}
	if len(l.pending) >= maxPending {
		return
	}
	l.pending = append(l.pending, n)
	l.wake.Up()
}

// Wake returns a channel that has a value when notifications are pending.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// Take removes and returns the pending notifications, the latest of each sale. There may be none.
func (l *Listener) Take() []Notification {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = nil
	return taken
}
