package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Stats returns the counts of the queue. It repeats the count, up to four times, if batches were taken or ended during
// it. Under load, Leased may omit batches. An error wraps sale.ErrUnavailable.
func (l *List) Stats(ctx context.Context) (Stats, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	var leases []string
	for try := 0; ; try++ {
		s, now, err := l.count(ctx, leases)
		if err != nil {
			return Stats{}, wrap("stats", err)
		}
		if slices.Equal(leases, now) || try == 4 {
			return s, nil
		}
		leases = now
	}
}

// count reads all counts in one transaction. Of the leased messages, it counts those of the given leases, and returns
// the leases that exist now. The result is exact if both are equal.
func (l *List) count(ctx context.Context, leases []string) (s Stats, now []string, err error) {
	var ready, dead, delayed, length *redis.IntCmd
	var found, due *redis.StringSliceCmd
	var clock *redis.TimeCmd
	var next *redis.StringCmd
	var groups *redis.XInfoGroupsCmd
	var first *redis.XMessageSliceCmd
	lengths, firsts := make([]*redis.IntCmd, len(leases)), make([]*redis.StringCmd, len(leases))
	cmds, _ := l.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		ready, delayed = p.LLen(ctx, l.shard.Ready()), p.ZCard(ctx, l.shard.Delayed())
		dead = p.ZCard(ctx, l.shard.Dead().Times())
		found = p.ZRange(ctx, l.shard.Leases(), 0, -1)
		next, due = p.LIndex(ctx, l.shard.Ready(), -1), p.ZRange(ctx, l.shard.Delayed(), 0, 0)
		length = p.XLen(ctx, l.shard.Orders())
		groups, first = p.XInfoGroups(ctx, l.shard.Orders()), p.XRangeN(ctx, l.shard.Orders(), "-", "+", 1)
		for i, id := range leases {
			lengths[i], firsts[i] = p.LLen(ctx, l.shard.Batch(id)), p.LIndex(ctx, l.shard.Batch(id), -1)
		}
		return nil
	})
	for _, c := range cmds {
		noStream := redis.HasErrorPrefix(c.Err(), "no such key")
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) && !noStream {
			return Stats{}, nil, err
		}
	}
	leased := int64(0) // entries of the stream
	for _, g := range groups.Val() {
		if g.Name == keyspace.OrdersGroup {
			leased = min(g.Pending, length.Val())
		}
	}
	s = Stats{
		Ready: ready.Val() + length.Val() - leased, Delayed: delayed.Val(), Leased: leased,
		Leases: int64(len(found.Val())), Dead: dead.Val(),
	}
	oldest := append(due.Val(), next.Val())
	for i := range leases {
		s.Leased += lengths[i].Val()
		oldest = append(oldest, firsts[i].Val())
	}
	for _, e := range first.Val() {
		oldest = append(oldest, keyspace.EntryText(e.Values))
	}
	for _, text := range oldest {
		if m, err := keyspace.DecodeMessage(text); err == nil {
			s.OldestAge = max(s.OldestAge, clock.Val().Sub(m.CreatedAt()).Truncate(time.Second))
		}
	}
	return s, found.Val(), nil
}
