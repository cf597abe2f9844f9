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

// hosts bounds the concurrent requests to each push service. It is safe for concurrent use.
type hosts struct {
	mu     sync.Mutex
	byName map[string]*host // also unused ones, until another host is added
}

type host struct {
	*semaphore.Weighted
	users int       // messages that wait for a slot or have one
	busy  time.Time // until then no message waits for a slot, because one has waited and got none
	delay time.Time // end of the delay of the last message that got no slot
}

// unused reports whether a host has neither messages nor state that the next message needs.
func (at *host) unused(now time.Time) bool {
	return at.users == 0 && now.After(at.busy) && now.After(at.delay)
}

const (
	// hostBusy is how long messages to a push service do not wait for a slot, after one has waited for hostWait and got
	// none.
	hostBusy = 5 * hostWait
	// hostSpacing is the interval at which messages return to a busy push service. It bounds the statements for a large
	// backlog.
	hostSpacing = hostWait / concurrency
)

// acquire waits for one of perHost slots of an endpoint's host, and returns the function that releases it. If there is
// no slot within the duration wait, or immediately if the host is busy, release is nil, and delay is added to the wait
// until the next attempt. It grows by hostSpacing with each message, so that the messages do not return together.
func (h *hosts) acquire(
	ctx context.Context, endpoint string, wait time.Duration,
) (release func(), delay time.Duration) {
	name := ""
	if u, err := url.Parse(endpoint); err == nil {
		name = strings.ToLower(u.Host)
	}
	h.mu.Lock()
	now := time.Now()
	at := h.byName[name]
	if at == nil {
		maps.DeleteFunc(h.byName, func(_ string, at *host) bool { return at.unused(now) })
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
	if !acquired {
		h.mu.Lock()
		defer h.mu.Unlock()
		at.users--
		now = time.Now()
		if !busy && ctx.Err() == nil {
			at.busy = now.Add(hostBusy)
		}
		delay = max(at.delay.Sub(now), 0)
		at.delay = now.Add(delay + hostSpacing)
		return nil, delay
	}
	return func() {
		at.Release(1)
		h.mu.Lock()
		defer h.mu.Unlock()
		at.users--
	}, 0
}
