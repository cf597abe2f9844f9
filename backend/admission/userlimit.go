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

// UserLimiter limits the purchase requests of one buyer in fixed windows (ulule/limiter). It is safe for concurrent use.
type UserLimiter struct {
	rate limiter.Rate
	open func() (limiter.Store, error)

	mu  sync.Mutex
	lim *limiter.Limiter // nil until the store could be opened
}

// LimitResult is a UserLimiter's answer.
type LimitResult struct {
	Allowed   bool
	Limit     int64 // requests a window
	Remaining int64 // of this window
	Period    time.Duration
	Reset     time.Time // end of this window, to the second
}

// NewUserLimiter makes a limiter from a rate in ulule/limiter's form, such as "10-S" or "100-M". With a nil client it counts in this
// process; else in Redis, for all backends together. That Redis should not be the one that holds the stock: refusals write to it.
func NewUserLimiter(rate string, client limitredis.Client) (*UserLimiter, error) {
	r, err := limiter.NewRateFromFormatted(rate)
	if err != nil || r.Limit < 1 {
		return nil, fmt.Errorf("user rate %q: want a number and S, M, H or D, such as 10-S", rate)
	}
	options := limiter.StoreOptions{Prefix: "sluice:limit:user", CleanUpInterval: limiter.DefaultCleanUpInterval}
	u := &UserLimiter{rate: r, open: func() (limiter.Store, error) { return memory.NewStoreWithOptions(options), nil }}
	if client != nil {
		u.open = func() (limiter.Store, error) { return limitredis.NewStoreWithOptions(client, options) }
	}
	return u, nil
}

// Allow counts one request of the buyer. An error wraps sale.ErrUnavailable; the caller decides what it means.
func (u *UserLimiter) Allow(ctx context.Context, buyer string) (LimitResult, error) {
	lim, err := u.limiter()
	if err != nil {
		return LimitResult{}, unavailable("user limit", err)
	}
	c, err := lim.Get(ctx, buyer)
	if err != nil {
		return LimitResult{}, unavailable("user limit", err)
	}
	return LimitResult{Allowed: !c.Reached, Limit: c.Limit, Remaining: c.Remaining, Period: u.rate.Period, Reset: time.Unix(c.Reset, 0)}, nil
}

// limiter opens the store at the first use that succeeds, so that a limiter Redis that is down at the start does not stop the process.
func (u *UserLimiter) limiter() (*limiter.Limiter, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lim == nil {
		store, err := u.open()
		if err != nil {
			return nil, err
		}
		u.lim = limiter.New(store, u.rate)
	}
	return u.lim, nil
}
