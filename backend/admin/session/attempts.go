package session

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Attempts limits sign-in attempts per address: a burst of five, then one per twelve seconds. It is safe for
// concurrent use.
type Attempts struct {
	mu        sync.Mutex
	byNetwork map[netip.Prefix]*rate.Limiter
	evicted   time.Time // time of the last eviction
}

const (
	attemptBurst    = 5
	attemptInterval = 12 * time.Second
	// maxNetworks bounds the memory. While that many networks have failed attempts, all others share one limiter.
	maxNetworks = 1000
)

// NewAttempts returns Attempts without any history.
func NewAttempts() *Attempts { return &Attempts{byNetwork: map[netip.Prefix]*rate.Limiter{}} }

// Allow takes one attempt. If none is left, wait is the time until the next one. Call it before the secret is
// compared, so that concurrent attempts count.
func (a *Attempts) Allow(from netip.Addr, now time.Time) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := network(from)
	if a.byNetwork[key] == nil && len(a.byNetwork) >= maxNetworks {
		if now.Sub(a.evicted) >= attemptInterval {
			a.evict(now)
		}
		if len(a.byNetwork) >= maxNetworks {
			key = netip.Prefix{}
		}
	}
	l := a.byNetwork[key]
	if l == nil {
		l = rate.NewLimiter(rate.Every(attemptInterval), attemptBurst)
		a.byNetwork[key] = l
	}
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// evict removes the networks whose limiter is full again.
func (a *Attempts) evict(now time.Time) {
	a.evicted = now
	for key, l := range a.byNetwork {
		if l.TokensAt(now) >= attemptBurst {
			delete(a.byNetwork, key)
		}
	}
}

// Reset restores all attempts of an address after a successful sign-in.
func (a *Attempts) Reset(from netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byNetwork, network(from))
}

// network returns the address, or the /64 of an IPv6 address, which usually belongs to one host.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil { // the zero address
		return netip.Prefix{}
	}
	return p
}
