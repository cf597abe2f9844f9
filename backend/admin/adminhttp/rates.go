package adminhttp

import (
	"sync"
	"time"

	"sluice/backend/admin"
)

// rates computes how fast orders are accepted and become rows, from the counts of two requests that are a second to a
// minute apart.
type rates struct {
	now func() time.Time

	mu       sync.Mutex
	previous sample
	latest   sample
}

type sample struct {
	at       time.Time
	accepted int64 // -1: unknown
	ordered  int64
}

const (
	minSpan = time.Second
	maxSpan = time.Minute
)

func newRates(now func() time.Time) *rates { return &rates{now: now} }

// update adds the current counts and compares them with earlier ones. An unknown rate is nil.
func (r *rates) update(views []admin.View) (accepted, ordered *float64) {
	s := sample{at: r.now()}
	for _, v := range views {
		s.ordered += v.Sold
		if v.Live == nil {
			s.accepted = -1
		} else if s.accepted >= 0 {
			s.accepted += v.Live.Accepted
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.at.Sub(r.latest.at) >= minSpan {
		r.previous, r.latest = r.latest, s
	}
	span := s.at.Sub(r.previous.at)
	if span < minSpan || span > maxSpan {
		return nil, nil
	}
	per := func(n int64) *float64 {
		rate := max(0, float64(n)/span.Seconds())
		return &rate
	}
	if s.accepted >= 0 && r.previous.accepted >= 0 {
		accepted = per(s.accepted - r.previous.accepted)
	}
	return accepted, per(s.ordered - r.previous.ordered)
}
