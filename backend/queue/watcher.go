package queue

import (
	"context"
	"log/slog"
	"time"

	"sluice/internal/loop"
)

// Reclaimer requeues expired leases (List).
type Reclaimer interface {
	Reclaim(ctx context.Context, limit int) (leases int, err error)
}

// Watcher requeues the leases of crashed workers. Any number of watchers may serve one queue without a leader,
// because a reclaim is atomic. Both fields are required.
type Watcher struct {
	Queue Reclaimer
	Log   *slog.Logger
}

const (
	watchInterval = time.Second // between two rounds
	watchLimit    = 100         // maximum leases per call to Reclaim
)

// Run calls RunOnce in intervals until ctx is cancelled, then returns nil. It logs the first error of an outage and
// continues.
func (w *Watcher) Run(ctx context.Context) error {
	// each process has its own phase, so the watchers of several processes do not run at the same instants
	loop.Repeat(ctx, watchInterval, w.Log, "requeuing expired leases", func() error {
		n, err := w.RunOnce(ctx)
		if n > 0 {
			w.Log.Info("watcher: requeued expired leases", "leases", n)
		}
		return err
	})
	return nil
}

// RunOnce reclaims until no expired lease is left and returns their number.
func (w *Watcher) RunOnce(ctx context.Context) (leases int, err error) {
	for {
		n, err := w.Queue.Reclaim(ctx, watchLimit)
		leases += n
		if err != nil || n < watchLimit {
			return leases, err
		}
	}
}
