package salechange

import (
	"sync"
)

// Hub passes sale notifications to the listeners of this process. It never blocks: a slow listener gets the latest
// notification of each sale, of at most mostSales sales. The zero value is ready to use. It is safe for concurrent
// use.
type Hub struct {
	mu     sync.Mutex
	all    map[*Listener]struct{}            // of every sale
	bySale map[string]map[*Listener]struct{} // of one
}

// mostSales bounds what is kept for a listener. What does not fit is lost, as signals may be.
const mostSales = 256

// Listener gets signals until it is closed. It is safe for concurrent use.
type Listener struct {
	hub    *Hub
	saleID string
	wake   chan struct{}

	mu      sync.Mutex
	pending []Notification // the latest of each sale, the longest waiting first
}

// Listen begins to listen to one sale, or to all when saleID is empty; all means all that changes: not Left. Close it.
func (h *Hub) Listen(saleID string) *Listener {
	l := &Listener{hub: h, saleID: saleID, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case saleID == "" && h.all == nil:
		h.all = map[*Listener]struct{}{}
	case saleID != "" && h.bySale == nil:
		h.bySale = map[string]map[*Listener]struct{}{}
	}
	if saleID == "" {
		h.all[l] = struct{}{}
		return l
	}
	if h.bySale[saleID] == nil {
		h.bySale[saleID] = map[*Listener]struct{}{}
	}
	h.bySale[saleID][l] = struct{}{}
	return l
}

// Close ends it. It may be called twice.
func (l *Listener) Close() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, l)
	delete(h.bySale[l.saleID], l)
	if len(h.bySale[l.saleID]) == 0 {
		delete(h.bySale, l.saleID)
	}
}

// Publish passes on a notification.
func (h *Hub) Publish(s Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.bySale[s.SaleID] {
		l.add(s)
	}
	if s.Type == Left {
		return
	}
	for l := range h.all {
		l.add(s)
	}
}

func (l *Listener) add(s Notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.pending {
		if l.pending[i].SaleID == s.SaleID {
			l.pending[i] = s
			return
		}
	}
	if len(l.pending) >= mostSales {
		return
	}
	l.pending = append(l.pending, s)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Wake has a value when there is something to Take.
func (l *Listener) Wake() <-chan struct{} { return l.wake }

// Take returns what has come since, the latest signal of each sale; it may be nothing.
func (l *Listener) Take() []Notification {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pending
	l.pending = nil
	return taken
}
