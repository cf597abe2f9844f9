package refusalcache

import (
	"sync"
	"sync/atomic"
)

type sale struct {
	id      string
	budget  *budget
	current atomic.Pointer[Record] // used by lookups; nil while the bypass list is missing

	mu       sync.Mutex
	latest   *Record // the last record stored
	list     *bypassList
	changed  int64 // time of the last invalidation, in ms
	touched  int64 // time of the last refusal of a backend, accepted order or notification, in ms
	fetching bool
	failed   bool  // the last fetch failed
	retryAt  int64 // no fetch starts before, in ms
	evicted  bool
}

// store adds a record, unless the latest one outranks it. It reports whether the bypass list is to be fetched.
func (s *sale) store(now int64, r *Record) (fetch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = now
	// If the sale changed while the request was in flight, the record may not include the change.
	if now >= r.until || r.sent <= s.changed || s.evicted {
		return false
	}
	if l := s.latest; l != nil && now < l.until && l.outranks(r) {
		return s.publish(now)
	}
	if s.list != nil && r.Holders < s.list.accepted && r.sent > s.list.fetched {
		s.setList(nil) // the count has decreased: Redis has lost orders, and the list is not valid for the new count
	}
	r.stored, s.latest = now, r
	return s.publish(now)
}

func (s *sale) setList(list *bypassList) {
	s.budget.release(s.list.len())
	s.list = list
}

// publish makes the latest record available to lookups if its bypass list is. It reports whether the list is to be
// fetched.
func (s *sale) publish(now int64) (fetch bool) {
	r := s.latest
	if r == nil || now >= r.until {
		s.current.Store(nil)
		return false
	}
	if r.Holders > 0 && (s.list == nil || s.list.accepted < r.Holders || now-s.list.fetched >= listExpiry.Milliseconds()) {
		s.current.Store(nil)
		return s.startFetch(now)
	}
	if s.current.Load() != r {
		if r.Holders > 0 {
			r.bypass.Store(s.list)
		}
		s.current.Store(r)
	}
	return r.Holders > 0 && now-s.list.fetched >= listAge.Milliseconds() && s.startFetch(now)
}

// startFetch reports whether a fetch may start, and marks it as started.
func (s *sale) startFetch(now int64) bool {
	if s.fetching || now < s.retryAt {
		return false
	}
	s.fetching = true
	return true
}

// invalidate removes the latest record, and prevents records of requests sent before now from being stored.
func (s *sale) invalidate(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed, s.touched = max(s.changed, now), now
	if s.latest != nil {
		s.latest = nil
		s.current.Store(nil)
	}
}

// evict clears the sale if it has reached saleExpiry, and reports whether it did.
func (s *sale) evict(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.touched < saleExpiry.Milliseconds() || s.fetching {
		return false
	}
	s.evicted = true
	s.current.Store(nil)
	s.setList(nil)
	return true
}
