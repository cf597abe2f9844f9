package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sales are the sales of a run. Each begins before the previous one ends: buyers choose from the last two.
type sales struct {
	plan   Plan
	admin  *adminActor
	buyers *crowd

	mu  sync.Mutex
	ids []string // of the sales that have begun
}

// run sends commands of the admin until ctx ends, and begins the sales meanwhile.
func (s *sales) run(ctx context.Context) {
	const every = 300 * time.Millisecond
	began := time.Now()
	for n := 1; n < s.plan.Sales && ctx.Err() == nil; n++ {
		next := began.Add(time.Duration(n) * s.plan.Span / time.Duration(s.plan.Sales))
		until, cancel := context.WithDeadline(ctx, next)
		s.admin.work(until, every)
		cancel()
		if ctx.Err() == nil {
			s.open()
		}
	}
	s.admin.work(ctx, every)
}

// open begins the next sale. It is not safe for concurrent use.
func (s *sales) open() {
	n := len(s.all())
	id, offer := fmt.Sprint("sale-", n), Offer{Stock: s.plan.Stock, PerBuyer: 1}
	switch n % 4 {
	case 1:
		offer.Stock /= 4 // sells out
	case 3:
		offer.PerBuyer = 2
	}
	if n%2 == 0 || n%8 == 3 {
		offer.Spread = s.plan.Spread
	}
	s.admin.create(id, offer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, id)
	s.buyers.offers(s.ids[max(0, n-1):]...)
}

// all returns the sales that have begun.
func (s *sales) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids
}
