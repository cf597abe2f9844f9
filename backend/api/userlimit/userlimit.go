// Package userlimit limits the purchase requests of a buyer at the backends.
package userlimit

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	limit   int64 // requests per window
	period  time.Duration
	local   window
	shared  *redisconn.Pipeline // nil: none
	timeout time.Duration       // sharedTimeout, except in tests
	now     func() time.Time
	retryAt atomic.Int64 // the shared Redis is not used before this time after a failure, ns since 1970
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
	Reset     time.Time // end of this window
	Local     bool      // counted in this process, because the shared Redis did not respond
}

// New returns a limiter with a rate of requests per second, minute, hour or day, such as "10-S", "100-M", "5-H" or
// "50-D"; "" means DefaultRate. With a nil client it counts in this process; otherwise in Redis, for all backends. It
// does not connect. That Redis should not be the one with the stock, because rejected requests write to it.
func New(rate string, client *redisconn.Pipeline) (*Limiter, error) {
	number, unit, _ := strings.Cut(cmp.Or(rate, DefaultRate), "-")
	limit, err := strconv.ParseInt(number, 10, 64)
	period := periods[strings.ToUpper(unit)]
	if err != nil || limit < 1 || period == 0 {
		return nil, fmt.Errorf("user rate %q: want a number and S, M, H or D, for example 10-S", rate)
	}
	return &Limiter{limit: limit, period: period, shared: client, timeout: sharedTimeout, now: time.Now}, nil
}

var periods = map[string]time.Duration{"S": time.Second, "M": time.Minute, "H": time.Hour, "D": 24 * time.Hour}

// Allow counts one request of the buyer.
func (u *Limiter) Allow(ctx context.Context, buyer string) Result {
	n, end, shared := u.countShared(ctx, buyer)
	if !shared {
		n, end = u.local.count(buyer, u.now(), u.period)
	}
	return Result{
		Allowed: n <= u.limit, Limit: u.limit, Remaining: max(0, u.limit-n), Period: u.period, Reset: end,
		Local: u.shared != nil && !shared,
	}
}

// countShared counts one request in the shared Redis. It returns the number of requests in the window, with this one,
// and the end of the window. ok is false if there is no such Redis, or if it fails or has failed within sharedRetry.
func (u *Limiter) countShared(ctx context.Context, buyer string) (n int64, end time.Time, ok bool) {
	if u.shared == nil || u.suspended() {
		return 0, time.Time{}, false
	}
	bounded, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	keys, period := []string{keyPrefix + buyer}, u.period.Milliseconds()
	reply, err := redisscript.Run(bounded, u.shared, "count_request", keys, period).Int64Slice()
	if err != nil || len(reply) != 2 {
		if ctx.Err() == nil {
			u.retryAt.Store(u.now().Add(sharedRetry).UnixNano())
		}
		return 0, time.Time{}, false
	}
	return reply[0], time.Now().Add(time.Duration(reply[1]) * time.Millisecond), true
}

// suspended reports whether the shared Redis has failed within sharedRetry.
func (u *Limiter) suspended() bool { return u.now().UnixNano() < u.retryAt.Load() }

// A window counts the requests of buyers in this process. The first request after its end begins the next window, in
// which all buyers count from 0. The zero value is a window that has ended.
type window struct {
	mu     sync.Mutex
	end    time.Time
	counts map[string]int64 // requests by buyer
}

// count counts a request at this time. It returns the buyer's number of requests in the window, with this one, and the
// end of the window, which is at most the period later.
func (w *window) count(buyer string, now time.Time, period time.Duration) (n int64, end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !now.Before(w.end) {
		// The next window is expected to have about as many buyers as this one.
		w.end, w.counts = now.Add(period), make(map[string]int64, len(w.counts))
	}
	w.counts[buyer]++
	return w.counts[buyer], w.end
}
