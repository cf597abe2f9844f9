package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff pauses between attempts: a random part ("full jitter") of a bound that doubles from 50 ms. The zero value is ready.
type backoff struct {
	n int // pauses so far
}

func (b *backoff) reset() { b.n = 0 }

// wait returns early when ctx is done.
func (b *backoff) wait(ctx context.Context, longest time.Duration) {
	bound := min(50*time.Millisecond<<min(b.n, 20), longest)
	b.n++
	pause := time.NewTimer(time.Millisecond + rand.N(bound))
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}
