package queue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// reclaimer is implemented by List and Stream.
type reclaimer interface {
	Reclaim(ctx context.Context, limit int) (leases int, err error)
}

// WatcherConfig configures a Watcher. Zero fields take the defaults in their comments.
type WatcherConfig struct {
	Interval time.Duration // between two rounds, randomized by a quarter; 1 s
	Limit    int           // maximum leases per call to Reclaim; 100
	Log      *slog.Logger  // slog.Default()
}

// Watcher requeues the leases of crashed workers. Any number of watchers may serve one queue without a leader,
// because a reclaim is atomic.
type Watcher struct {
	queue reclaimer
	cfg   WatcherConfig
}

// NewWatcher returns a watcher of one queue.
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

// Run calls RunOnce in intervals until ctx is cancelled, then returns nil. It logs errors and continues.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		if n, err := w.RunOnce(ctx); err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("watcher: reclaim failed", "err", err)
		} else if n > 0 {
			w.cfg.Log.Info("watcher: requeued expired leases", "leases", n)
		}
		// The jitter keeps several watchers out of step.
		pause := time.NewTimer(w.cfg.Interval*3/4 + rand.N(w.cfg.Interval/2+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// RunOnce reclaims until no expired lease is left and returns their number.
func (w *Watcher) RunOnce(ctx context.Context) (leases int, err error) {
	for {
		n, err := w.queue.Reclaim(ctx, w.cfg.Limit)
		leases += n
		if err != nil || n < w.cfg.Limit {
			return leases, err
		}
	}
}
