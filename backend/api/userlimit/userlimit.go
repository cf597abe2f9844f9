// Package userlimit limits the purchase requests of a buyer at the backends.
package userlimit

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/common"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"sluice/backend/redis/redisconn"
	redisscript "sluice/lua/redis"
)

// DefaultRate is the default limit per user: ten purchase requests a second.
const DefaultRate = "10-S"

// keyPrefix begins the key of a buyer's count in the shared Redis.
const keyPrefix = "sluice:limit:user:"

// Limiter limits the purchase requests of a buyer in fixed windows. Backends share the counts in a Redis. Without that
// Redis, or while it does not respond, each backend counts alone, so that its failure does not stop a sale. A Limiter
// is safe for concurrent use.
type Limiter struct {
	rate    limiter.Rate
	local   *limiter.Limiter
	shared  *redisconn.Pipeline // nil: none
	now     func() time.Time
	retryAt atomic.Int64 // the shared Redis has failed and is not used before, ns since 1970
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

// New returns a limiter with a rate in the format of ulule/limiter, such as "10-S" or "100-M"; "" means DefaultRate.
// With a nil client it counts in this process; otherwise in Redis, for all backends. It does not connect. That Redis
// should not be the one with the stock, because rejected requests write to it.
func New(rate string, client *redisconn.Pipeline) (*Limiter, error) {
	r, err := limiter.NewRateFromFormatted(cmp.Or(rate, DefaultRate))
	if err != nil || r.Limit < 1 {
		return nil, fmt.Errorf("user rate %q: want a number and S, M, H or D, for example 10-S", rate)
	}
	// The count of a buyer stays in memory until the next cleanup: with the default interval, for up to half a minute.
	options := limiter.StoreOptions{CleanUpInterval: min(r.Period, limiter.DefaultCleanUpInterval)}
	local := limiter.New(memory.NewStoreWithOptions(options), r)
	return &Limiter{rate: r, local: local, shared: client, now: time.Now}, nil
}

// Allow counts one request of the buyer.
func (u *Limiter) Allow(ctx context.Context, buyer string) Result {
	c, shared := u.countShared(ctx, buyer)
	if !shared {
		c, _ = u.local.Get(ctx, buyer) // counting in memory does not fail
	}
	return Result{
		Allowed: !c.Reached, Limit: c.Limit, Remaining: c.Remaining, Period: u.rate.Period, Reset: time.Unix(c.Reset, 0),
		Local: u.shared != nil && !shared,
	}
}

// countShared counts one request in the shared Redis. ok is false if there is none, or if it fails or has failed within
// sharedRetry.
func (u *Limiter) countShared(ctx context.Context, buyer string) (c limiter.Context, ok bool) {
	if u.shared == nil || u.suspended() {
		return c, false
	}
	bounded, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	keys, period := []string{keyPrefix + buyer}, u.rate.Period.Milliseconds()
	reply, err := redisscript.Run(bounded, u.shared, "count_request", keys, period).Int64Slice()
	if err != nil || len(reply) != 2 {
		if ctx.Err() == nil {
			u.retryAt.Store(u.now().Add(sharedRetry).UnixNano())
		}
		return c, false
	}
	now := time.Now()
	end := now.Add(time.Duration(reply[1]) * time.Millisecond)
	return common.GetContextFromState(now, u.rate, end, reply[0]), true
}

// suspended reports whether the shared Redis has failed within sharedRetry.
func (u *Limiter) suspended() bool { return u.now().UnixNano() < u.retryAt.Load() }
