package queue

import (
	"context"
)

// Reclaim takes back at most limit leases that have run out, and answers how many it did. Their messages go to the front of the
// queue with one more crash counted, or die of it. Delayed messages whose time has come (at most MaxBatch of them) become
// ready as well. Any number of callers may do this at once.
func (l *List) Reclaim(ctx context.Context, limit int) (leases int, err error) {
	if err := l.promoteDue(ctx); err != nil {
		return 0, wrap("promote", err)
	}
	ids, err := l.expiredLeases(ctx, limit)
	if err != nil {
		return 0, wrap("reclaim", err)
	}
	for _, id := range ids {
		n, err := l.reclaimOne(ctx, id)
		if err != nil {
			return leases, wrap("reclaim", err)
		}
		if n >= 0 {
			leases++
			l.cfg.Reclaimed(n)
		}
	}
	return leases, nil
}

func (l *List) promoteDue(ctx context.Context) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.promote.Run(ctx, l.client, []string{l.lane.Delayed(), l.lane.Ready(), l.lane.Wake(), l.lane.Epoch()}, MaxBatch).Err()
}

func (l *List) expiredLeases(ctx context.Context, limit int) ([]string, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.expired.Run(ctx, l.client, []string{l.lane.Leases()}, max(limit, 1)).StringSlice()
}

// reclaimOne answers how many messages came back, or -1 when the lease has not run out after all.
func (l *List) reclaimOne(ctx context.Context, id string) (int, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	keys := []string{
		l.lane.Leases(), l.lane.Batch(id), l.lane.Ready(), l.lane.Wake(),
		l.lane.Attempts(), l.lane.Crashes(), l.lane.Dead(), l.lane.DeadLetters(), l.lane.Epoch(),
	}
	return l.reclaim.Run(ctx, l.client, keys, id, l.cfg.MaxCrashes).Int()
}
