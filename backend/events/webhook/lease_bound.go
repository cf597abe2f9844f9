package webhook

import (
	"slices"
	"time"

	"sluice/backend/events"
)

// leaseKey is the sort key by which the waiting deliveries of an endpoint are leased: due_at, then position. The zero
// value is before all of them.
type leaseKey struct {
	due      time.Time // by the database's clock
	position int64
}

// bound returns the bound for the leases of an endpoint. If it is wrong, or differs from that of another process, no
// delivery is lost or sent out of order.
func (s *Store) bound(endpointID string) *events.ScanBound[leaseKey] {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.leased[endpointID]
	if b == nil {
		b = &events.ScanBound[leaseKey]{}
		s.leased[endpointID] = b
	}
	return b
}

// advance sets the key above which leases begin after some deliveries were leased at the database's time now.
// Deliveries in SequenceUnordered do not count, because they are sent while others wait.
func advance(bound *events.ScanBound[leaseKey], leased []Delivery, now time.Time) {
	for _, d := range slices.Backward(leased) { // the last one has the highest key
		if d.Sequence == SequenceUnordered {
			continue
		}
		to := leaseKey{d.DueAt, d.Position}
		if late := now.Add(-events.LateCommit); to.due.After(late) {
			to.due = late
		}
		bound.Advance(to)
		return
	}
}

// dueBound is a record of DueEndpoints: the milliseconds of a bound's due_at, rounded down.
type dueBound struct {
	Endpoint string `json:"endpoint"`
	DueMS    int64  `json:"due_ms"`
}

// dueFrom returns the due_at at which DueEndpoints begins for each endpoint that has a bound. Once per events.WholeScan
// it returns none, so that DueEndpoints reads all waiting deliveries.
func (s *Store) dueFrom() []dueBound {
	s.mu.Lock()
	defer s.mu.Unlock()
	bounds := []dueBound{}
	if now := s.now(); now.Sub(s.whole) >= events.WholeScan {
		s.whole = now
		return bounds
	}
	for id, b := range s.leased {
		if key := b.Key(); key != (leaseKey{}) {
			bounds = append(bounds, dueBound{id, key.due.UnixMilli()})
		}
	}
	return bounds
}
