package notify

import (
	"context"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
)

// hosts bounds the concurrent requests to each push service. It is safe for concurrent use.
type hosts struct {
	mu     sync.Mutex
	byName map[string]*host // with requests that run or wait
}

type host struct {
	*semaphore.Weighted
	users int
}

// acquire waits for one of perHost slots of an endpoint's host, and returns the function that releases it. The error is
// that of ctx.
func (h *hosts) acquire(ctx context.Context, endpoint string) (release func(), err error) {
	name := ""
	if u, err := url.Parse(endpoint); err == nil {
		name = strings.ToLower(u.Host)
	}
	h.mu.Lock()
	at := h.byName[name]
	if at == nil {
		at = &host{Weighted: semaphore.NewWeighted(perHost)}
		h.byName[name] = at
	}
	at.users++
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(h.byName, name)
		}
	}
	if err := at.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { at.Release(1); leave() }, nil
}
