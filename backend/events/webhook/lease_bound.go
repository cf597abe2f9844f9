package webhook

import (
	"sync"
	"time"
)

// leaseKey is the sort key by which the waiting deliveries of an endpoint are leased: due_at, then position. The zero
// value is before all of them.
type leaseKey struct {
	due      time.Time // by the database's clock
	position int64
}

func (k leaseKey) before(other leaseKey) bool {
	return k.due.Before(other.due) || k.due.Equal(other.due) && k.position < other.position
}

const (
	// lateDelivery is how much later than deliveries that were leased another one may become visible without a delay: its
	// transaction began before theirs and committed after them.
	lateDelivery = 250 * time.Millisecond
	// rescanShare is the reciprocal of the share of time that scans from the beginning may take.
	rescanShare = 20
)

// nextScan returns when the next scan from the beginning is allowed, after one from began to ended.
func nextScan(began, ended time.Time) time.Time { return ended.Add(rescanShare * ended.Sub(began)) }

// A leaseBound is the key above which the next lease of an endpoint begins: that of a delivery that this process leased
// lateDelivery ago or earlier. PostgreSQL keeps the versions of deliveries that were leased or delivered for as long as
// any transaction in the database is older, and a lease from the beginning reads all of them. Only a twentieth of the
// time is spent on such leases. They find deliveries with an expired lease, and those that became visible late. The
// bound is a hint: if it is wrong, or other processes have others, no delivery is lost or sent out of order. It is safe
// for concurrent use.
type leaseBound struct {
	mu                   sync.Mutex
	from, later, highest leaseKey  // later: highest at the time turned
	turned               time.Time // when from was set to later
	whole                time.Time // when the next lease may begin with the zero key
}

// next returns the key above which the next lease begins.
func (b *leaseBound) next(now time.Time) leaseKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.turned) >= lateDelivery {
		b.from, b.later, b.turned = b.later, b.highest, now
	}
	if !now.Before(b.whole) {
		return leaseKey{}
	}
	return b.from
}

// leased records a lease from a key.
func (b *leaseBound) leased(from leaseKey, all []Delivery, began, ended time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from == (leaseKey{}) {
		b.whole = nextScan(began, ended)
	}
	for _, d := range all {
		if k := (leaseKey{d.DueAt, d.Position}); b.highest.before(k) {
			b.highest = k
		}
	}
}

func (s *Store) bound(endpointID string) *leaseBound {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bounds[endpointID]
	if b == nil {
		b = &leaseBound{}
		s.bounds[endpointID] = b
	}
	return b
}

// dueBound is a record of DueEndpoints: the milliseconds of a bound's due_at, rounded down.
type dueBound struct {
	Endpoint string `json:"endpoint"`
	DueMS    int64  `json:"due_ms"`
}

// dueFrom returns the due_at at which DueEndpoints begins for each endpoint that has a bound, and a function that
// DueEndpoints calls at its end.
func (s *Store) dueFrom() (bounds []dueBound, ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.now()
	if !began.Before(s.wholeDue) {
		return []dueBound{}, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wholeDue = nextScan(began, s.now())
		}
	}
	bounds = []dueBound{}
	for id, b := range s.bounds {
		b.mu.Lock()
		if from := b.from; from != (leaseKey{}) {
			bounds = append(bounds, dueBound{id, from.due.UnixMilli()})
		}
		b.mu.Unlock()
	}
	return bounds, func() {}
}
