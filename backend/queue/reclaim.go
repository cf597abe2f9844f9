package queue

import "context"

// Reclaim requeues the messages of up to limit expired leases at the front of the queue and returns the number of
// leases. It counts a crash for each message; a message with too many becomes a dead letter. Reclaim also makes up to
// MaxBatch due delayed messages ready. It may be called concurrently by any number of processes.
//
// Redis's clock may jump. After a jump ahead, leases expire early, which costs one crash each. After a jump back,
// leases would last as long as the clock was wrong; those with a deadline more than twice the longest lease ahead
// start again from now.
//
// While nothing is leased or delayed, a call costs one round trip without a script.
func (l *List) Reclaim(ctx context.Context, limit int) (leases int, err error) {
	if n, err := l.exist(ctx, l.shard.Delayed(), l.shard.Leases()); err != nil || n == 0 {
		return 0, wrap("reclaim", err)
	}
	keys := []string{l.shard.Delayed(), l.shard.Ready(), l.shard.Wake(), l.shard.Guard()}
	if err := l.run(ctx, "promote_delayed", keys, MaxBatch).Err(); err != nil {
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
			l.cfg.OnReclaim(n)
		}
	}
	return leases, nil
}

// maxAhead returns how far ahead a lease's deadline and a delayed message's due time may lie, in milliseconds: twice
// the values of this process, because another process may use longer ones.
func (l *List) maxAhead() (lease, delay int64) {
	return 2 * l.cfg.Lease.Milliseconds(), 2 * l.cfg.BackoffCap.Milliseconds()
}

// expiredLeases returns the ids of up to limit expired leases, and whether the clock was set back.
func (l *List) expiredLeases(ctx context.Context, limit int) (ids []string, ahead bool, err error) {
	lease, delay := l.maxAhead()
	keys := []string{l.shard.Leases(), l.shard.Delayed()}
	answer, err := l.run(ctx, "expired_leases", keys, max(limit, 1), lease, delay).StringSlice()
	if err != nil {
		return nil, false, err
	}
	last := len(answer) - 1
	return answer[:last], answer[last] == "ahead", nil
}

func (l *List) rewindClock(ctx context.Context) error {
	lease, delay := l.maxAhead()
	keys := []string{l.shard.Leases(), l.shard.Delayed(), l.shard.Guard()}
	args := []any{lease, delay, l.cfg.Lease.Milliseconds(), l.cfg.BackoffCap.Milliseconds(), MaxBatch}
	return l.run(ctx, "clamp_deadlines", keys, args...).Err()
}

// reclaimOne returns the number of requeued messages, or -1 if the lease has been extended.
func (l *List) reclaimOne(ctx context.Context, id string) (int, error) {
	keys := []string{
		l.shard.Leases(), l.shard.Batch(id), l.shard.Ready(), l.shard.Wake(), l.shard.Attempts(), l.shard.Crashes(),
		l.shard.Dead().Times(), l.shard.Dead().Letters(), l.shard.Guard(), l.shard.Orders(), l.shard.Dead().Index(),
	}
	return l.run(ctx, "reclaim", keys, id, l.cfg.MaxCrashes).Int()
}
