package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Stats returns the counts of the queue. It counts again, up to four times, while batches are taken or end meanwhile.
// Under load, Leased may omit batches. An error wraps sale.ErrUnavailable.
func (l *List) Stats(ctx context.Context) (Stats, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	var leases []string
	stream := l.cfg.Stream
	for try := 0; ; try++ {
		s, now, filled, err := l.count(ctx, leases, stream)
		if err != nil {
			return Stats{}, wrap("stats", err)
		}
		if slices.Equal(leases, now) && (stream || !filled) || try == 4 {
			return s, nil
		}
		leases, stream = now, stream || filled
	}
}

// count reads all counts in one transaction: of the batches with these leases and, if stream is set, of the stream. The
// result is exact if the leases that it returns equal those it was given, and stream was set or the stream is empty.
// filled reports that the stream is not.
func (l *List) count(
	ctx context.Context, leases []string, stream bool,
) (s Stats, now []string, filled bool, err error) {
	var ready, dead, delayed, length *redis.IntCmd
	var found, due *redis.StringSliceCmd
	var clock *redis.TimeCmd
	var next *redis.StringCmd
	var groups *redis.XInfoGroupsCmd
	first := new(redis.XMessageSliceCmd)
	lengths, firsts := make([]*redis.IntCmd, len(leases)), make([]*redis.StringCmd, len(leases))
	cmds, _ := l.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		ready, delayed = p.LLen(ctx, l.shard.Ready()), p.ZCard(ctx, l.shard.Delayed())
		dead = p.ZCard(ctx, l.shard.Dead().Times())
		found = p.ZRange(ctx, l.shard.Leases(), 0, -1)
		next, due = p.LIndex(ctx, l.shard.Ready(), -1), p.ZRange(ctx, l.shard.Delayed(), 0, 0)
		length = p.XLen(ctx, l.shard.Orders())
		if stream {
			groups, first = p.XInfoGroups(ctx, l.shard.Orders()), p.XRangeN(ctx, l.shard.Orders(), "-", "+", 1)
		}
		for i, id := range leases {
			lengths[i], firsts[i] = p.LLen(ctx, l.shard.Batch(id)), p.LIndex(ctx, l.shard.Batch(id), -1)
		}
		return nil
	})
	for _, c := range cmds {
		noStream := c == redis.Cmder(groups) && c.Err() != nil && strings.Contains(c.Err().Error(), "no such key")
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) && !noStream {
			return Stats{}, nil, false, err
		}
	}
	s = Stats{Ready: ready.Val(), Delayed: delayed.Val(), Dead: dead.Val(), Leases: int64(len(found.Val()))}
	oldest := append(due.Val(), next.Val())
	for i := range leases {
		s.Leased += lengths[i].Val()
		oldest = append(oldest, firsts[i].Val())
	}
	if stream {
		leased := int64(0)
		for _, g := range groups.Val() {
			if g.Name == keyspace.OrdersGroup {
				leased = min(g.Pending, length.Val())
			}
		}
		s.Leased += leased
		s.Ready += length.Val() - leased
		for _, e := range first.Val() {
			oldest = append(oldest, keyspace.EntryText(e.Values))
		}
	}
	for _, text := range oldest {
		if m, err := keyspace.DecodeMessage(text); err == nil {
			s.OldestAge = max(s.OldestAge, clock.Val().Sub(m.CreatedAt()).Truncate(time.Second))
		}
	}
	return s, found.Val(), length.Val() > 0, nil
}
