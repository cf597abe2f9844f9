package queue

import (
	"context"

	"sluice/backend/redis/redisconn"
)

// Reclaim requeues the messages of up to limit expired leases at the front of the queue and returns the number of
// leases. It counts a crash for each message; a message with too many becomes a dead letter. Reclaim also makes up to
// MaxBatch due delayed messages ready. It may be called concurrently by any number of processes.
//
// Redis's clock may jump. After a jump ahead, leases expire early, which counts one crash for each message. After a
// jump back, leases and delays would last for as long as the clock was wrong. Reclaim therefore restarts each lease and
// each delay that ends later than twice its longest configured duration from now. The factor two allows for other
// processes with longer durations.
//
// An error that concerns one lease does not stop the others. While nothing is leased or delayed, a call costs one round
// trip without a script.
func (l *List) Reclaim(ctx context.Context, limit int) (leases int, err error) {
	bounded, cancel := l.bounded(ctx)
	n, err := l.client.Exists(bounded, l.shard.Delayed(), l.shard.Leases()).Result() // they exist while not empty
	cancel()
	if err != nil || n == 0 {
		return 0, wrap("reclaim", err)
	}
	keys := []string{l.shard.Leases(), l.shard.Delayed(), l.shard.Ready(), l.shard.Wake(), l.shard.Guard()}
	args := []any{max(limit, 1), l.cfg.Lease.Milliseconds(), l.cfg.BackoffCap.Milliseconds(), MaxBatch}
	ids, err := l.run(ctx, "watch", keys, args...).StringSlice()
	if err != nil {
		return 0, wrap("reclaim", err)
	}
	var failed error
	for _, id := range ids {
		n, err := l.reclaimOne(ctx, id)
		switch {
		case err != nil && (redisconn.Unavailable(err) || ctx.Err() != nil):
			return leases, wrap("reclaim", err)
		case err != nil: // a key of this batch has the wrong type
			failed = wrap("reclaim "+id, err)
		case n >= 0:
			leases++
			l.cfg.OnReclaim(n)
		}
	}
	return leases, failed
}

// reclaimOne returns the number of requeued messages, or -1 if the lease has been extended.
func (l *List) reclaimOne(ctx context.Context, id string) (int, error) {
	keys := []string{
		l.shard.Leases(), l.shard.Batch(id), l.shard.Ready(), l.shard.Wake(), l.shard.Attempts(), l.shard.Crashes(),
		l.shard.Dead().Times(), l.shard.Dead().Letters(), l.shard.Guard(), l.shard.Orders(), l.shard.Dead().Index(),
	}
	return l.run(ctx, "reclaim", keys, id, l.cfg.MaxCrashes).Int()
}
