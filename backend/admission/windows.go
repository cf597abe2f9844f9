package admission

import (
	"sync"
	"time"
)

// windows counts the requests of users in this process, in fixed windows. The window of a user begins with a request
// and lasts for the period; the next request after its end begins another one. Old windows are removed together, by the
// first request after a period: a search for those that have ended would cost as much as counting. windows is safe for
// concurrent use.
type windows struct {
	period time.Duration // positive

	mu sync.Mutex
	// current has the users that were counted since turned, and before those that were counted before, since the turn
	// before turned. A user may be in both, and current has the newer count.
	current, before map[string]window
	turned          time.Time
}

// window is the window of one user.
type window struct {
	count int64 // requests
	end   time.Time
}

// add counts one request, and returns the window of the user with it.
func (w *windows) add(user string, now time.Time) window {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.turned) >= w.period {
		// All windows of before have ended: the last request in each is older than a period.
		w.before, w.current, w.turned = w.current, make(map[string]window, len(w.current)), now
	}
	one, counted := w.current[user]
	if !counted {
		one = w.before[user]
	}
	if !now.Before(one.end) {
		one = window{end: now.Add(w.period)}
	}
	one.count++
	w.current[user] = one
	return one
}
