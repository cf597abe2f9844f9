package notify

import (
	"context"
	"maps"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// hosts bounds the concurrent requests to each push service. It also bounds those to all suspect push services
// together. A push service is suspect unless its last request was short and ended at most promptFor ago. hosts is safe
// for concurrent use.
type hosts struct {
	mu      sync.Mutex
	byName  map[string]*host // also unused ones, until there are pruneAt hosts
	pruneAt int              // twice the number after the last removal, so that few additions visit all hosts
	suspect *semaphore.Weighted
}

type host struct {
	*semaphore.Weighted
	users  int       // messages that wait for a slot or have one
	busy   time.Time // until then no message waits for a slot, because one has waited and got none
	delay  time.Time // end of the delay of the last message that got no slot
	prompt time.Time // until then it is not suspect, because its last request was short
}

// unused reports whether a host has neither messages nor state that the next message needs.
func (at *host) unused(now time.Time) bool {
	return at.users == 0 && now.After(at.busy) && now.After(at.delay) && now.After(at.prompt)
}

const (
	// hostBusy is how long messages to a push service do not wait for a slot, after one has waited for hostWait and got
	// none.
	hostBusy = 5 * hostWait
	// hostSpacing is the interval at which messages return to a busy push service. It bounds the number of SQL statements
	// that a large backlog causes.
	hostSpacing = hostWait / concurrency
	// perSuspects is the number of concurrent requests to all suspect push services together. Buyers choose the hosts, so
	// any number of them may hang.
	perSuspects = concurrency / 4
	// promptFor is how long a push service is not suspect after a request that took less than hostWait.
	promptFor = 10 * time.Minute
	// promptTimeout bounds a request to a push service that is not suspect. Several of them may use all slots of the
	// process. If they begin to hang together, they delay other messages for this time at most.
	promptTimeout = 2 * hostWait
)

func newHosts() *hosts {
	return &hosts{byName: map[string]*host{}, suspect: semaphore.NewWeighted(perSuspects)}
}

// slot is the permission to send one message to a push service.
type slot struct {
	hosts   *hosts
	at      *host
	suspect bool // it also takes one of the slots of suspect push services
}

// acquire waits for one of perHost slots of an endpoint's host, for up to the duration wait; if the host is busy, it
// does not wait. If it gets no slot, s is nil, and delay must be added to the time until the next attempt of the
// message. The same applies to a suspect host while there are perSuspects requests to suspect hosts. The delay grows by
// hostSpacing with each message, so that the messages do not return together.
func (h *hosts) acquire(ctx context.Context, endpoint string, wait time.Duration) (s *slot, delay time.Duration) {
	name := ""
	if u, err := url.Parse(endpoint); err == nil {
		name = strings.ToLower(u.Host)
	}
	h.mu.Lock()
	now := time.Now()
	at := h.byName[name]
	if at == nil {
		if len(h.byName) >= h.pruneAt {
			maps.DeleteFunc(h.byName, func(_ string, at *host) bool { return at.unused(now) })
			h.pruneAt = 2 * len(h.byName)
		}
		at = &host{Weighted: semaphore.NewWeighted(perHost)}
		h.byName[name] = at
	}
	at.users++
	busy := now.Before(at.busy)
	h.mu.Unlock()
	acquired := at.TryAcquire(1)
	if !acquired && !busy {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		acquired = at.Acquire(waiting, 1) == nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now = time.Now()
	suspect := !now.Before(at.prompt)
	switch {
	case acquired && (!suspect || h.suspect.TryAcquire(1)):
		return &slot{h, at, suspect}, 0
	case acquired:
		at.Release(1)
	case !busy && ctx.Err() == nil:
		at.busy = now.Add(hostBusy)
	}
	at.users--
	delay = max(at.delay.Sub(now), 0)
	at.delay = now.Add(delay + hostSpacing)
	return nil, delay
}

// timeout returns the maximum duration of the slot's request.
func (s *slot) timeout() time.Duration {
	if s.suspect {
		return sendTimeout
	}
	return promptTimeout
}

// ended records the duration of the slot's request.
func (s *slot) ended(took time.Duration) {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.at.prompt = time.Time{}
	if took < hostWait {
		s.at.prompt = time.Now().Add(promptFor)
	}
}

func (s *slot) release() {
	s.at.Release(1)
	if s.suspect {
		s.hosts.suspect.Release(1)
	}
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.at.users--
}
