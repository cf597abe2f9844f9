package loop

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

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
