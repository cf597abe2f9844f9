package known

import (
	"sync"
	"sync/atomic"
)

// sale is what is known of one sale.
type sale struct {
	id   string
	room *room
	use  atomic.Pointer[Record] // what may be repeated, once it is known whom it must not be told

	mu       sync.Mutex
	latest   *Record // the last one learned, whether or not it is in use
	list     *holders
	accepted int64 // ms: when an acceptance came back last
	touched  int64 // ms
	fetching bool
	failed   bool  // the last fetch
	retry    int64 // ms: no fetch before
	gone     bool  // no longer remembered
}

// learn takes a record in, unless what is known is as good or better. It says whether a list is to be fetched now.
func (s *sale) learn(now int64, r *Record) (fetch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = now
	// An order that was accepted while this was under way may not be among its holders.
	if now >= r.until || r.sent <= s.accepted || s.gone {
		return false
	}
	if l := s.latest; l != nil && now < l.until && l.outdoes(r) {
		return s.publish(now)
	}
	if s.list != nil && r.Holders < s.list.accepted && r.sent > s.list.fetched {
		s.keep(nil) // the count went back: Redis lost some, and the list is of another past
	}
	r.learned, s.latest = now, r
	return s.publish(now)
}

// keep replaces the list and gives back the room of the one before.
func (s *sale) keep(list *holders) {
	s.room.give(s.list.count())
	s.list = list
}

// publish puts the latest record in use, or none until its list is there. It says whether a list is to be fetched now.
func (s *sale) publish(now int64) (fetch bool) {
	r := s.latest
	if r == nil || now >= r.until {
		s.use.Store(nil)
		return false
	}
	if r.Holders > 0 && (s.list == nil || s.list.accepted < r.Holders || now-s.list.fetched >= listEnd.Milliseconds()) {
		s.use.Store(nil)
		return s.begin(now)
	}
	if s.use.Load() != r {
		if r.Holders > 0 {
			r.list = s.list
		}
		s.use.Store(r)
	}
	return r.Holders > 0 && now-s.list.fetched >= listAge.Milliseconds() && s.begin(now)
}

// begin says whether a fetch may begin, and takes it for begun.
func (s *sale) begin(now int64) bool {
	if s.fetching || now < s.retry {
		return false
	}
	s.fetching = true
	return true
}

// sold takes down that an order was accepted, or that the sale has changed: nothing that was learned before is of use.
func (s *sale) sold(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted, s.touched = max(s.accepted, now), now
	if s.latest != nil {
		s.latest = nil
		s.use.Store(nil)
	}
}
