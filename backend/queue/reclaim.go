package queue

import (
	"context"
)

// Reclaim takes back at most limit leases that have run out, and answers how many it did. Their messages go to the front of the
// queue with one more crash counted, or die of it. Delayed messages whose time has come (at most MaxBatch of them) become
// ready as well. Any number of callers may do this at once.
//
// Redis's clock may be wrong and be set right. Set ahead, leases run out early, which costs a crash each and nothing else. Set back, they would last for as long as
// the clock was wrong: those that lie further ahead than twice the longest there is are counted from now.
func (l *List) Reclaim(ctx context.Context, limit int) (leases int, err error) {
	if err := l.promoteDue(ctx); err != nil {
		return 0, wrap("promote", err)
	}
	ids, ahead, err := l.expiredLeases(ctx, limit)
	if err == nil && ahead {
		err = l.rewindClock(ctx)
	}
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
	return l.promote.Run(ctx, l.client, []string{l.shard.Delayed(), l.shard.Ready(), l.shard.Wake(), l.shard.Guard()}, MaxBatch).Err()
}

// tooFar bounds how far ahead a deadline and a due time can lie, in ms: twice what this process would set, so that one whose leases
// are somewhat longer keeps them.
func (l *List) tooFar() (lease, delay int64) {
	return 2 * l.cfg.Lease.Milliseconds(), 2 * l.cfg.BackoffCap.Milliseconds()
}

// expiredLeases also tells whether the clock was set back.
func (l *List) expiredLeases(ctx context.Context, limit int) (ids []string, ahead bool, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	lease, delay := l.tooFar()
	answer, err := l.expired.Run(ctx, l.client, []string{l.shard.Leases(), l.shard.Delayed()}, max(limit, 1), lease, delay).StringSlice()
	if err != nil {
		return nil, false, err
	}
	last := len(answer) - 1
	return answer[:last], answer[last] == "ahead", nil
}

func (l *List) rewindClock(ctx context.Context) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	lease, delay := l.tooFar()
	return l.rewind.Run(ctx, l.client, []string{l.shard.Leases(), l.shard.Delayed(), l.shard.Guard()},
		lease, delay, l.cfg.Lease.Milliseconds(), l.cfg.BackoffCap.Milliseconds(), MaxBatch).Err()
}

// reclaimOne answers how many messages came back, or -1 when the lease has not run out after all.
func (l *List) reclaimOne(ctx context.Context, id string) (int, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	keys := []string{
		l.shard.Leases(), l.shard.Batch(id), l.shard.Ready(), l.shard.Wake(),
		l.shard.Attempts(), l.shard.Crashes(), l.shard.Dead(), l.shard.DeadLetters(), l.shard.Guard(), l.shard.Orders(), l.shard.DeadIndex(),
	}
	return l.reclaim.Run(ctx, l.client, keys, id, l.cfg.MaxCrashes).Int()
}
