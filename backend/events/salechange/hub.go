package salechange

import (
	"sync"

	"sluice/internal/loop"
)

// Hub passes sale notifications to the listeners of this process. It never blocks: a slow listener gets the latest
// notification of each sale, of at most mostSales sales. The zero value is ready to use. It is safe for concurrent
// use.
type Hub struct {
	mu        sync.Mutex
	listeners map[string]map[*Listener]struct{} // by sale; "": of every sale
}

// mostSales bounds what is kept for a listener. What does not fit is lost, as notifications may be.
const mostSales = 256

// Listener gets notifications until it is closed. It is safe for concurrent use.
type Listener struct {
	hub    *Hub
	saleID string
	wake   loop.Wake

	mu      sync.Mutex
	pending []Notification // the latest of each sale, the longest waiting first
}

// Listen begins to listen to one sale, or to all when saleID is empty; all means all that changes: not Left. Close it.
func (h *Hub) Listen(saleID string) *Listener {
	l := &Listener{hub: h, saleID: saleID, wake: loop.NewWake()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listeners == nil {
		h.listeners = map[string]map[*Listener]struct{}{}
	}
	if h.listeners[saleID] == nil {
		h.listeners[saleID] = map[*Listener]struct{}{}
	}
	h.listeners[saleID][l] = struct{}{}
	return l
}

// Close ends it. It may be called twice.
func (l *Listener) Close() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners[l.saleID], l)
	if len(h.listeners[l.saleID]) == 0 {
		delete(h.listeners, l.saleID)
	}
}

// Publish passes on a notification.
func (h *Hub) Publish(n Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners[n.SaleID] {
		l.add(n)
	}
	if n.Type == Left {
		return
	}
	for l := range h.listeners[""] {
		l.add(n)
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
	if len(l.pending) >= mostSales {
		return
	}
	l.pending = append(l.pending, n)
	l.wake.Up()
}

// Wake has a value when there is something to Take.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// Take returns what has come since, the latest notification of each sale; it may be nothing.
func (l *Listener) Take() []Notification {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = nil
	return taken
}
