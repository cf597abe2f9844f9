// Package userlimit limits the purchase requests of a buyer at the backends.
package userlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	limitredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"sluice/backend/redis/redisconn"
)

// DefaultRate is the default limit per user: ten purchase requests a second.
const DefaultRate = "10-S"

// Limiter limits the purchase requests of a buyer in fixed windows (ulule/limiter). Backends share the counts in a
// Redis. Without that Redis, or while it does not respond, each backend counts alone, so that its failure does not stop
// a sale. A Limiter is safe for concurrent use.
type Limiter struct {
	rate  limiter.Rate
	local *limiter.Limiter
	open  func() (limiter.Store, error) // of the shared Redis; nil if there is none
	now   func() time.Time

	mu      sync.Mutex
	shared  *limiter.Limiter // nil until its store is open
	opening bool             // a request opens the store
	retryAt time.Time        // the shared Redis failed and is not used before
}

// sharedTimeout bounds the wait of a purchase for the shared Redis. After a failure it is not used for sharedRetry.
const (
	sharedTimeout = 250 * time.Millisecond
	sharedRetry   = time.Second
)

// Result is the result of a Limiter.
type Result struct {
	Allowed   bool
	Limit     int64 // requests per window
	Remaining int64 // in this window
	Period    time.Duration
	Reset     time.Time // end of this window, to the second
	Local     bool      // counted in this process, because the shared Redis did not respond
}

// New returns a limiter with a rate in the format of ulule/limiter, such as "10-S" or "100-M"; "" means
// DefaultRate. With a nil client it counts in this process; otherwise in Redis, for all backends. That Redis should
// not be the one with the stock, because rejected requests write to it.
func New(rate string, client *redisconn.Pipeline) (*Limiter, error) {
	r, err := limiter.NewRateFromFormatted(cmp.Or(rate, DefaultRate))
	if err != nil || r.Limit < 1 {
		return nil, fmt.Errorf("user rate %q: want a number and S, M, H or D, for example 10-S", rate)
	}
	// The count of a buyer stays in memory until the next cleanup: with the default interval, for up to half a minute.
	cleanup := min(r.Period, limiter.DefaultCleanUpInterval)
	options := limiter.StoreOptions{Prefix: "sluice:limit:user", CleanUpInterval: cleanup}
	u := &Limiter{rate: r, local: limiter.New(memory.NewStoreWithOptions(options), r), now: time.Now}
	if client != nil {
		u.open = func() (limiter.Store, error) { return limitredis.NewStoreWithOptions(storeClient{client}, options) }
	}
	return u, nil
}

// storeClient is the client of the store of ulule/limiter in Redis. The store does not call Watch.
type storeClient struct{ *redisconn.Pipeline }

func (storeClient) Watch(context.Context, func(*redis.Tx) error, ...string) error {
	return errors.ErrUnsupported
}

// Allow counts one request of the buyer.
func (u *Limiter) Allow(ctx context.Context, buyer string) Result {
	if lim := u.sharedLimiter(); lim != nil {
		bounded, cancel := context.WithTimeout(ctx, sharedTimeout)
		c, err := lim.Get(bounded, buyer)
		cancel()
		if err == nil {
			return u.result(c)
		}
		if ctx.Err() == nil {
			u.suspend()
		}
	}
	c, _ := u.local.Get(ctx, buyer) // counting in memory does not fail
	r := u.result(c)
	r.Local = u.open != nil
	return r
}

func (u *Limiter) result(c limiter.Context) Result {
	return Result{
		Allowed: !c.Reached, Limit: c.Limit, Remaining: c.Remaining, Period: u.rate.Period, Reset: time.Unix(c.Reset, 0),
	}
}

// sharedLimiter returns the limiter that counts in Redis, or nil if there is none or it is not used now. It opens the
// store at first use, so that a Redis that is down does not prevent the start. One request opens the store, without mu;
// others count locally meanwhile.
func (u *Limiter) sharedLimiter() *limiter.Limiter {
	if u.open == nil {
		return nil
	}
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

// suspend stops the use of the shared Redis for sharedRetry.
func (u *Limiter) suspend() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retryAt = u.now().Add(sharedRetry)
}
