package queue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// reclaimer is the part of a queue that a watcher needs.
type reclaimer interface {
	Reclaim(ctx context.Context, limit int) (leases int, err error)
}

// WatcherConfig tunes a Watcher. Zero fields take the defaults named here.
type WatcherConfig struct {
	Interval time.Duration // between two rounds, give or take a quarter; 1 s
	Limit    int           // leases reclaimed in one call; 100
	Log      *slog.Logger  // slog.Default()
}

// Watcher brings back what crashed workers leave behind. Any number of them may watch one queue; there is no leader, because
// reclaiming is atomic in the queue and a second attempt finds nothing.
type Watcher struct {
	queue reclaimer
	cfg   WatcherConfig
}

// NewWatcher makes a watcher of one queue.
func NewWatcher(queue reclaimer, cfg WatcherConfig) *Watcher {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	if cfg.Limit <= 0 {
		cfg.Limit = 100
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Watcher{queue: queue, cfg: cfg}
}

// Run watches until ctx is cancelled, and then returns nil. A queue that does not answer is logged and tried again.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		if n, err := w.RunOnce(ctx); err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("watcher: queue does not answer", "err", err)
		} else if n > 0 {
			w.cfg.Log.Info("watcher: reclaimed leases that ran out", "leases", n)
		}
		// The jitter keeps several watchers from always looking at the same moment.
		pause := time.NewTimer(w.cfg.Interval*3/4 + rand.N(w.cfg.Interval/2+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// RunOnce reclaims until no lease that has run out is left, and answers how many there were.
func (w *Watcher) RunOnce(ctx context.Context) (leases int, err error) {
	for {
		n, err := w.queue.Reclaim(ctx, w.cfg.Limit)
		leases += n
		if err != nil || n < w.cfg.Limit {
			return leases, err
		}
	}
}
