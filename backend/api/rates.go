package api

import (
	"sync"
	"time"

	"sluice/backend/admin"
)

// rates tells how fast orders are accepted and become rows, from the counts of two requests that lie a second to a minute apart.
// Nobody counts while nobody asks.
type rates struct {
	now func() time.Time

	mu       sync.Mutex
	previous sample
	latest   sample
}

type sample struct {
	at       time.Time
	accepted int64 // -1: not known
	ordered  int64
}

const (
	leastSpan = time.Second
	mostSpan  = time.Minute
)

func newRates(now func() time.Time) *rates { return &rates{now: now} }

// since adds the present counts, and compares them with earlier ones; nil is a rate that is not known.
func (r *rates) since(views []admin.View) (accepted, ordered *float64) {
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
	if s.at.Sub(r.latest.at) >= leastSpan {
		r.previous, r.latest = r.latest, s
	}
	span := s.at.Sub(r.previous.at)
	if span < leastSpan || span > mostSpan {
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
