package api

import (
	"sync"
	"time"
)

// rollCallEvery is how often the streams are asked at most whether their clients are still there.
const rollCallEvery = time.Second

// rollCall asks all event streams whether their clients are still there (hungUp), when there is no room for another one. Otherwise only the next write
// would tell, which may be a heartbeat away, and whoever opens streams and drops them would have all places. The zero value is ready; it may be used
// by many at once.
type rollCall struct {
	mu     sync.Mutex
	called chan struct{}
	last   time.Time
}

// next is closed with the next call.
func (r *rollCall) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current()
}

func (r *rollCall) current() chan struct{} {
	if r.called == nil {
		r.called = make(chan struct{})
	}
	return r.called
}

// call asks everybody, unless they were asked a moment ago.
func (r *rollCall) call(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < rollCallEvery {
		return
	}
	r.last = now
	close(r.current())
	r.called = nil
}
