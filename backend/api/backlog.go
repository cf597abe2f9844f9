package api

import (
	"context"
	"sync/atomic"
	"time"
)

// DefaultMaxQueued is the bound of the queue where none is set. A message takes about 150 bytes of Redis.
const DefaultMaxQueued = 1_000_000

// backlog tells whether more orders are accepted than become rows: with the database down for long, purchases are refused rather
// than Redis filled. It looks at most once a second, beside the purchase that asks, so what is accepted within that second can
// exceed the bound. While the queue cannot be counted it keeps its last word: Admit needs the same Redis and will know.
type backlog struct {
	queue QueueStats
	most  int64

	full    atomic.Bool
	looked  atomic.Int64 // Unix nanoseconds
	looking atomic.Bool
}

const backlogInterval = time.Second

// isFull never waits for Redis.
func (b *backlog) isFull(now time.Time) bool {
	if now.UnixNano()-b.looked.Load() >= int64(backlogInterval) && b.looking.CompareAndSwap(false, true) {
		b.looked.Store(now.UnixNano())
		go func() {
			defer b.looking.Store(false)
			b.look()
		}()
	}
	return b.full.Load()
}

func (b *backlog) look() {
	ctx, cancel := context.WithTimeout(context.Background(), backlogInterval)
	defer cancel()
	s, err := b.queue.Stats(ctx)
	if err != nil {
		return
	}
	b.full.Store(s.Ready+s.Delayed+s.Leased >= b.most)
}
