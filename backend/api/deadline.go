package api

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines provides contexts for work that must not stop if the client disconnects, and must not hang. Requests that
// begin within the same eighth of the timeout share one context, because a timer per request would cost more than the
// rest of its handling. It is safe for concurrent use.
type deadlines struct {
	timeout time.Duration
	current atomic.Pointer[deadline]
}

type deadline struct {
	ctx   context.Context
	until time.Time // requests that begin before this time use ctx
}

// next returns a context that ends after the timeout, or up to an eighth of it earlier.
func (d *deadlines) next() context.Context {
	now := time.Now()
	if shared := d.current.Load(); shared != nil && now.Before(shared.until) {
		return shared.ctx
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	context.AfterFunc(ctx, cancel) // cancel releases the timer; not called earlier, because other requests use ctx
	d.current.Store(&deadline{ctx: ctx, until: now.Add(d.timeout / 8)})
	return ctx
}
