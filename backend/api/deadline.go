package api

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines hands out contexts for work that a client who hangs up must not stop half way, and that must not hang either. Requests that begin within
// the same eighth of the timeout share one context: a timer for each would cost more than all else that is done with it. Safe for concurrent use.
type deadlines struct {
	timeout time.Duration
	now     atomic.Pointer[deadline]
}

type deadline struct {
	ctx   context.Context
	until time.Time // for requests that begin before this
}

// next is a context that ends after the timeout, or up to an eighth of it earlier.
func (d *deadlines) next() context.Context {
	now := time.Now()
	if shared := d.now.Load(); shared != nil && now.Before(shared.until) {
		return shared.ctx
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	context.AfterFunc(ctx, cancel) // and not earlier: others may have it
	d.now.Store(&deadline{ctx: ctx, until: now.Add(d.timeout / 8)})
	return ctx
}
