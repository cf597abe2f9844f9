package api

import (
	"sync"
	"time"
)

// sweepInterval is the minimum time between two sweeps.
const sweepInterval = time.Second

// disconnectSweep wakes all event streams to check whether their clients have disconnected (peerClosed). It runs when a
// stream is refused because all are in use. Without it, a stream detects a disconnect only with its next heartbeat, and
// a client that opens and closes streams could occupy all of them. The zero value is ready to use. It is safe for
// concurrent use.
type disconnectSweep struct {
	mu   sync.Mutex
	wake chan struct{}
	last time.Time
}

// next returns a channel that the next sweep closes.
func (s *disconnectSweep) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channel()
}

func (s *disconnectSweep) channel() chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// run wakes all streams, at most once per sweepInterval.
func (s *disconnectSweep) run(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < sweepInterval {
		return
	}
	s.last = now
	close(s.channel())
	s.wake = nil
}
