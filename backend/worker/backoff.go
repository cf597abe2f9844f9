package worker

import (
	"context"
	"time"

	"sluice/internal/loop"
)

// backoff pauses between attempts with full jitter; the bound doubles from 50 ms up to Config.MaxBackoff. The zero
// value is ready to use.
type backoff struct {
	n int // pauses so far
}

func (b *backoff) reset() { b.n = 0 }

// wait returns early when ctx is done.
func (b *backoff) wait(ctx context.Context, c *Config) {
	bound := min(50*time.Millisecond<<min(b.n, 20), c.MaxBackoff)
	b.n++
	loop.Sleep(ctx, time.Millisecond+time.Duration(c.Jitter()*float64(bound)))
}
