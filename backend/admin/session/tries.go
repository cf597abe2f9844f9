package session

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Tries bounds how often somebody may try to sign in: five times in a row from one address, and once every twelve seconds after that. It is safe for
// concurrent use.
type Tries struct {
	mu    sync.Mutex
	by    map[netip.Prefix]*rate.Limiter
	swept time.Time // when addresses were forgotten last
}

const (
	triesInARow = 5
	tryEvery    = 12 * time.Second
	// maxAddresses bounds what is remembered. When so many addresses fail at once, all further ones share one allowance.
	maxAddresses = 1000
)

// NewTries makes a Tries.
func NewTries() *Tries { return &Tries{by: map[netip.Prefix]*rate.Limiter{}} }

// Try takes one try; wait is how long to wait before the next, when there is none. Call it before the secret is looked at, so that tries at the same instant count.
func (t *Tries) Try(from netip.Addr, now time.Time) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := network(from)
	l := t.by[key]
	if l == nil {
		if len(t.by) >= maxAddresses && now.Sub(t.swept) >= tryEvery {
			t.forget(now)
		}
		if len(t.by) >= maxAddresses {
			key = netip.Prefix{}
			l = t.by[key]
		}
		if l == nil {
			l = rate.NewLimiter(rate.Every(tryEvery), triesInARow)
			t.by[key] = l
		}
	}
	r := l.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// forget drops the addresses that have all their tries again.
func (t *Tries) forget(now time.Time) {
	t.swept = now
	for key, l := range t.by {
		if l.TokensAt(now) >= triesInARow {
			delete(t.by, key)
		}
	}
}

// Right gives an address all its tries back: whoever is there knew the secret.
func (t *Tries) Right(from netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.by, network(from))
}

// network is the address, or the /64 of IPv6, which one person has whole.
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
