package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	limitredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// DefaultUserRate is the per-user limit where none is set: ten purchase requests a second.
const DefaultUserRate = "10-S"

// UserLimiter limits the purchase requests of one buyer in fixed windows (ulule/limiter). While the Redis in which backends count together does not answer, each
// counts for itself: a server that only counts must not stop a sale. It is safe for concurrent use.
type UserLimiter struct {
	rate  limiter.Rate
	local *limiter.Limiter
	open  func() (limiter.Store, error) // of Redis; nil: there is none
	now   func() time.Time

	mu      sync.Mutex
	shared  *limiter.Limiter // nil until its store could be opened
	opening bool             // by some request
	retryAt time.Time        // until then Redis is not asked, because it did not answer
}

// Bounds on a Redis that counts: a purchase waits no longer for it, and after it has not answered one it is left alone for a while.
const (
	sharedTimeout = 250 * time.Millisecond
	sharedRetry   = time.Second
)

// LimitResult is a UserLimiter's answer.
type LimitResult struct {
	Allowed   bool
	Limit     int64 // requests a window
	Remaining int64 // of this window
	Period    time.Duration
	Reset     time.Time // end of this window, to the second
	Local     bool      // counted in this process, because Redis did not answer
}

// NewUserLimiter makes a limiter from a rate in ulule/limiter's form, such as "10-S" or "100-M". With a nil client it counts in this
// process; else in Redis, for all backends together. That Redis should not be the one that holds the stock: refusals write to it.
func NewUserLimiter(rate string, client limitredis.Client) (*UserLimiter, error) {
	r, err := limiter.NewRateFromFormatted(rate)
	if err != nil || r.Limit < 1 {
		return nil, fmt.Errorf("user rate %q: want a number and S, M, H or D, such as 10-S", rate)
	}
	options := limiter.StoreOptions{Prefix: "sluice:limit:user", CleanUpInterval: limiter.DefaultCleanUpInterval}
	u := &UserLimiter{rate: r, local: limiter.New(memory.NewStoreWithOptions(options), r), now: time.Now}
	if client != nil {
		u.open = func() (limiter.Store, error) { return limitredis.NewStoreWithOptions(client, options) }
	}
	return u, nil
}

// Allow counts one request of the buyer. An error wraps sale.ErrUnavailable; the caller decides what it means.
func (u *UserLimiter) Allow(ctx context.Context, buyer string) (LimitResult, error) {
	if u.open == nil {
		return u.count(ctx, u.local, buyer)
	}
	if lim := u.sharedLimiter(); lim != nil {
		bounded, cancel := context.WithTimeout(ctx, sharedTimeout)
		r, err := u.count(bounded, lim, buyer)
		cancel()
		if err == nil {
			return r, nil
		}
		if ctx.Err() == nil {
			u.suspend()
		}
	}
	r, err := u.count(ctx, u.local, buyer)
	r.Local = true
	return r, err
}

func (u *UserLimiter) count(ctx context.Context, lim *limiter.Limiter, buyer string) (LimitResult, error) {
	c, err := lim.Get(ctx, buyer)
	if err != nil {
		return LimitResult{}, unavailable("user limit", err)
	}
	return LimitResult{Allowed: !c.Reached, Limit: c.Limit, Remaining: c.Remaining, Period: u.rate.Period, Reset: time.Unix(c.Reset, 0)}, nil
}

// together is the limiter that counts in Redis, or nil while that is to be left alone. Its store is opened at the first use that succeeds: a Redis that is away at the start does
// not stop the process. One request opens it, and the others do not wait for that.
func (u *UserLimiter) sharedLimiter() *limiter.Limiter {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.now().Before(u.retryAt) || u.opening {
		return nil
	}
	if u.shared != nil {
		return u.shared
	}
	u.opening = true
	u.mu.Unlock()
	store, err := u.open()
	u.mu.Lock()
	u.opening = false
	if err != nil {
		u.retryAt = u.now().Add(sharedRetry)
		return nil
	}
	u.shared = limiter.New(store, u.rate)
	return u.shared
}

func (u *UserLimiter) suspend() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retryAt = u.now().Add(sharedRetry)
}
