// Package loop provides the common parts of background loops: interruptible waits, ticks that loops share, retries,
// wake-ups, a context for work that outlives a stop, and a pool that leases tasks, runs them and records their results.
package loop

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Wake wakes a loop. Wake-ups are coalesced. Make one with NewWake; the loop receives from it.
type Wake chan struct{}

// NewWake returns a Wake without a pending wake-up.
func NewWake() Wake { return make(Wake, 1) }

// Up wakes the loop. It returns immediately.
func (w Wake) Up() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Outlive returns a context that ends a duration of drain after ctx, or when stop is called. stop releases its
// resources.
func Outlive(ctx context.Context, drain time.Duration) (work context.Context, stop context.CancelFunc) {
	work, stop = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		Sleep(work, drain)
		stop()
	})
	return work, stop
}

// Bounds of the wait after a failure. The wait doubles with each consecutive failure, and half of it is random.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 2 * time.Second
)

// Backoff logs the first of several consecutive failures and the recovery, and waits after each failure.
type Backoff struct {
	Log  *slog.Logger
	What string // what fails, for the log: "relaying events" is logged as "relaying events fails; retrying"

	failures int
}

// Failed logs err if it is the first of consecutive failures, and waits. The wait ends with ctx. After the end of ctx,
// which may be the cause of err, Failed does nothing.
func (b *Backoff) Failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if b.failures == 0 {
		b.Log.Warn(b.What+" fails; retrying", "err", err)
	}
	wait := min(firstWait<<min(b.failures, 5), maxWait)
	b.failures++
	Sleep(ctx, wait/2+rand.N(wait/2))
}

// Succeeded ends a series of failures.
func (b *Backoff) Succeeded() {
	if b.failures > 0 {
		b.Log.Info(b.What + " works again")
	}
	b.failures = 0
}

// Retry runs do until it succeeds or ctx ends. It reports whether do succeeded.
func Retry(ctx context.Context, log *slog.Logger, what string, do func() error) bool {
	retry := Backoff{Log: log, What: what}
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			retry.Succeeded()
			return true
		}
		retry.Failed(ctx, err)
	}
	return false
}

// Record runs write until it succeeds, limit has passed, or work has ended. write runs at least once, and the end of
// work does not interrupt it. Record logs a warning if write never succeeded.
func Record(
	work context.Context, limit time.Duration, log *slog.Logger, what string, write func(context.Context) error,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), limit)
	defer cancel()
	retry := Backoff{Log: log, What: what}
	for {
		err := write(ctx)
		if err == nil {
			retry.Succeeded()
			return
		}
		retry.Failed(work, err)
		if ctx.Err() != nil || work.Err() != nil {
			log.Warn(what+" is given up", "err", err)
			return
		}
	}
}

// Pool runs leased tasks concurrently. R is the result of a task.
type Pool[R any] struct {
	Size   int                       // tasks that run concurrently
	Poll   time.Duration             // interval of leases while tasks run and none of them ends
	Wake   Wake                      // causes a lease; may be nil
	Lease  func(free int) []func() R // returns at most this many tasks, which must end soon after a stop
	Record func(results []R)         // stores results; tasks run meanwhile
}

// Run leases and runs tasks until no task is running and either Lease returns none or ctx has ended.
func (p Pool[R]) Run(ctx context.Context) {
	done := make(chan R, p.Size)
	for running := 0; ; {
		if free := p.Size - running; free > 0 && ctx.Err() == nil {
			for _, task := range p.Lease(free) {
				running++
				go func() { done <- task() }()
			}
		}
		if running == 0 {
			return
		}
		var results []R
		select {
		case r := <-done:
			results = append(results, r)
		case <-p.Wake:
		case <-time.After(p.Poll):
		}
		for len(done) > 0 { // tasks that ended during the previous Record
			results = append(results, <-done)
		}
		running -= len(results)
		if len(results) > 0 {
			p.Record(results)
		}
	}
}

// phase shifts the ticks of this process, so that processes that start together do not run together.
var phase = rand.N(time.Hour)

// Tick waits until the next tick of a loop that runs at this interval, or until ctx ends. All loops of the process
// count their ticks from the same instant. Loops with the same interval run together, so that an idle process wakes
// once for all of them.
func Tick(ctx context.Context, interval time.Duration) { Sleep(ctx, UntilTick(interval)) }

// Ticks iterates over the ticks of a loop until ctx ends. It begins with the next one.
func Ticks(ctx context.Context, interval time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		for Tick(ctx, interval); ctx.Err() == nil && yield(); Tick(ctx, interval) {
		}
	}
}

// Repeat calls do immediately and then at each tick of the interval, until ctx ends. A failed call is retried as by
// Retry.
func Repeat(ctx context.Context, interval time.Duration, log *slog.Logger, what string, do func() error) {
	for Retry(ctx, log, what, do) {
		Tick(ctx, interval)
	}
}

// UntilTick returns the time until the next tick: more than 0 and at most interval, which must be positive.
func UntilTick(interval time.Duration) time.Duration {
	return interval - (time.Duration(time.Now().UnixNano())+phase)%interval
}
